// The arithmetic of SwiGLU in PTX. Layer device.
#pragma once

#include <finegemm/quantize/activation.h>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// Gives the bits of HostMath (src/ops/quantize/cpu_math.h).
struct PtxMath {
    __device__ static float fma(float a, float b, float c) { return ptx::fma(a, b, c); }
    /// From an approximation within a unit in the last place this one step leads to the nearest.
    __device__ static float reciprocal(float x) {
        const float rough = ptx::rough_reciprocal(x);
        return ptx::fma(rough, ptx::fma(-x, rough, 1.0f), rough);
    }
    __device__ static float at_most(float x, float most) { return ptx::min_or_nan(x, most); }
    __device__ static float at_least(float x, float least) { return ptx::max_or_nan(x, least); }
};

}  // namespace finegemm::device
