// The named barriers of a CTA and who meets at them. Layer device.
#pragma once

#include <finegemm/core/arrivals.h>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

inline constexpr uint32_t kWarpgroupBarrier = 1;  // 0 is __syncthreads

/// All 128 threads of one math warpgroup.
__device__ inline void warpgroup_barrier(uint32_t warpgroup) {
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
}

}  // namespace finegemm::device
