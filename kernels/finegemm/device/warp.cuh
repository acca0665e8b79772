// What the lanes of a warp compute together. Layer device.
#pragma once

#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

/// Sums over the lanes up to this one.
__device__ inline uint32_t sum_up_to(uint32_t x) {
#pragma unroll
    for (uint32_t distance = 1; distance < kWarpSize; distance *= 2) {
        const uint32_t below = ptx::value_below(x, distance);
        if (threadIdx.x % kWarpSize >= distance) x += below;
    }
    return x;
}

}  // namespace finegemm::device
