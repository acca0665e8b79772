// Steps of FP32 arithmetic, on the host. Layer tests.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// Each lane's words of the four matrices, of whose rows each lane names one.
inline Words4 ldmatrix_x4(SmemAddr row) {
    const auto named = load_shared_as<Words4>(row);
    const uint32_t lane = threadIdx.x % 32;
    Words4 mine{};
    for (uint32_t word = 0; word < 4; ++word) {
        const uint32_t* const shown = machine->show(named.w[word]);
        for (uint32_t matrix = 0; matrix < 4 && lane % 4 == word; ++matrix)
            mine.w[matrix] = shown[matrix * 8 + lane / 4];
    }
    return mine;
}
inline float multiply(float a, float b) { return canonical(a * b); }
inline float add(float a, float b) { return canonical(a + b); }
inline float relu(float x) { return is_nan(x) ? canonical(x) : x > 0 ? x : 0.0f; }
inline uint32_t halves_of_lower_e4m3(uint32_t codes) {
    const auto half = [](uint8_t code) { return f16_of_float(float_of_e4m3(code)); };
    return half(static_cast<uint8_t>(codes)) | static_cast<uint32_t>(half(static_cast<uint8_t>(codes >> 8))) << 16;
}
inline uint32_t halves_of_upper_e4m3(uint32_t codes) { return halves_of_lower_e4m3(codes >> 16); }
inline Float2 unpack_f16(uint32_t packed) {
    return {{float_of_f16(static_cast<uint16_t>(packed)), float_of_f16(static_cast<uint16_t>(packed >> 16))}};
}
inline float magnitude(float x) { return std::fabs(x); }
inline float nan_if_infinite(float x) { return canonical(std::fma(x, 0.0f, x)); }

}  // namespace finegemm::ptx
