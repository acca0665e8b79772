// The arithmetic of SwiGLU in PTX. Layer device.
#pragma once

#include <finegemm/quantize/activation.h>
#include <finegemm/quantize/quantize.h>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// Gives the bits of HostMath (src/ops/quantize/cpu_math.h).
struct PtxMath {
    __device__ static float fma(float a, float b, float c) { return ptx::fma(a, b, c); }
    /// From the hardware's approximation this one step leads to the nearest, for each x from 1 to 2^126: all were tried
    /// on an H200. So it does from 2^-126 on, as powers of two change nothing.
    __device__ static float reciprocal(float x) {
        const float rough = ptx::rough_reciprocal(x);
        return ptx::fma(rough, ptx::fma(-x, rough, 1.0f), rough);
    }
    __device__ static float at_most(float x, float most) { return ptx::min_or_nan(x, most); }
    __device__ static float at_least(float x, float least) { return ptx::max_or_nan(x, least); }
};

/// The bits of block_scale for e4m3, where `largest` is a finite magnitude: without a division, which branches.
__device__ inline float block_scale_of(float largest, bool power_of_two) {
    constexpr float kInverse = 1.0f / kE4m3Max;
    const float near = largest * kInverse;  // the remainder is exact, and makes the quotient the nearest
    const float scale = ptx::fma(ptx::fma(-kE4m3Max, near, largest), kInverse, near);
    const uint32_t bits = max(float_bits(scale), float_bits(kLeastScale));
    if (largest == 0) return 1.0f;
    return float_of_bits(power_of_two ? (bits + 0x7fffffu) & 0x7f800000u : bits);
}

}  // namespace finegemm::device
