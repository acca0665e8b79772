// From e4m3 codes with MX scales to f16, in registers. Layer device.
#pragma once

#include <finegemm/gemm/mx_scale.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// The lower two codes of a word and its upper two, times their factor.
__device__ inline void decode_codes(uint32_t& low, uint32_t& high, uint32_t codes, uint32_t factor) {
    low = ptx::multiply_f16x2(ptx::f16x2_of_low_codes(codes), factor);
    high = ptx::multiply_f16x2(ptx::f16x2_of_high_codes(codes), factor);
}

}  // namespace finegemm::device
