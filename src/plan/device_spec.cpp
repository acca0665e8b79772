// Known devices. Layer plan.
#include "plan/plan.h"

namespace finegemm::plan {

namespace {

// H200, and what L2 adds on an H100: as measured (bench/results). The others: from data sheets, relative to these.
constexpr DeviceSpec kDevices[] = {
    {.name = "h200"},
    {.name = "h100", .hbm_bytes_per_us = 2.9e6, .l2_adds_per_us = 0.96e6},
    {.name = "gh200", .hbm_bytes_per_us = 3.5e6, .l2_adds_per_us = 1.1e6},
    {.name = "h800", .hbm_bytes_per_us = 2.9e6, .l2_adds_per_us = 0.96e6},
    {.name = "h20", .sms = 78, .clock_ratio = 1.1, .hbm_bytes_per_us = 3.5e6, .l2_adds_per_us = 1.1e6},
};

}  // namespace

const DeviceSpec* find_device(std::string_view name) {
    for (const DeviceSpec& device : kDevices)
        if (device.name == name) return &device;
    return nullptr;
}

}  // namespace finegemm::plan
