// From e4m3 codes with MX scales to bf16: in registers, exactly. Layer device.
#pragma once

#include <finegemm/gemm/mx_scale.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// The lower two codes of a word and its upper two, times their factor. Returns bits of kMxNanFound: one may be NaN.
__device__ inline uint32_t decode_codes(uint32_t& low, uint32_t& high, uint32_t codes, uint32_t factor) {
    const uint32_t placed_low = mx_place(ptx::spread_low_codes(codes)),
                   placed_high = mx_place(ptx::spread_high_codes(codes));
    low = ptx::multiply_bf16x2(placed_low, factor);
    high = ptx::multiply_bf16x2(placed_high, factor);
    return mx_nan_bits(placed_low) | mx_nan_bits(placed_high);
}

/// Has some lane of the warp codes that are NaN, or a factor that is two?
__device__ inline bool is_unusual(uint32_t found, uint32_t factors) {
    return ptx::ballot(((found & kMxNanFound) | (factors & kMxTwice)) != 0) != 0;
}

/// Likewise, of all codes and all factors.
__device__ inline uint32_t decode_unusual(uint32_t placed, uint32_t factor) {
    const bool twice = (factor & kMxTwice) != 0;
    const uint32_t first = twice ? kMxLargest : factor, second = twice ? (factor & 0xffff) * 0x10001u : kMxOne;
    const uint32_t product = ptx::multiply_bf16x2(ptx::multiply_bf16x2(placed, first), second);
    const uint32_t nans = (mx_nan_bits(placed) & kMxNanFound) >> 11;
    return (product & ~(nans * 0xffff)) | nans * kMxNan;
}
__device__ inline void decode_unusual(uint32_t& low, uint32_t& high, uint32_t codes, uint32_t factor) {
    low = decode_unusual(mx_place(ptx::spread_low_codes(codes)), factor);
    high = decode_unusual(mx_place(ptx::spread_high_codes(codes)), factor);
}

}  // namespace finegemm::device
