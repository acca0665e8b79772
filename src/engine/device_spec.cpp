// Matching a GPU with the planner's devices. Layer engine.
#include "engine/device_spec.h"

namespace finegemm {

namespace {

/// Part of the nominal memory bandwidth that is reached: what an H200 reaches.
constexpr double kReachedBandwidth = 0.88;

}  // namespace

plan::DeviceSpec spec_of(const cuda::DeviceFacts& facts) {
    plan::DeviceSpec spec{.name = "unknown"};
    if (facts.memory_bytes_per_us > 0) {
        const double known = spec.hbm_bytes_per_us;
        spec.hbm_bytes_per_us = facts.memory_bytes_per_us * kReachedBandwidth;
        spec.l2_adds_per_us *= spec.hbm_bytes_per_us / known;
    }
    std::string word;  // whole words: " H20" is also the beginning of " H200"
    for (const char c : facts.name + ' ') {
        if (c >= 'A' && c <= 'Z') {
            word += static_cast<char>(c - 'A' + 'a');
        } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
            word += c;
        } else {
            if (const plan::DeviceSpec* known = plan::find_device(word)) spec = *known;
            word.clear();
        }
    }
    spec.sms = facts.sms;
    spec.smem_bytes = facts.smem_bytes;
    return spec;
}

}  // namespace finegemm
