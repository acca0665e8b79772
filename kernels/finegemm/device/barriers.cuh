// The named barriers of a CTA and who meets at them. Layer device.
#pragma once

#include <finegemm/core/arrivals.h>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

inline constexpr uint32_t kMaxMathWarpgroups = 4;
inline constexpr uint32_t kSlabBarrier = 1;                                   // 0 is __syncthreads
inline constexpr uint32_t kScaleBarrier = kSlabBarrier + kMaxMathWarpgroups;  // "scale warp w may fill stages"

/// All 128 threads of one math warpgroup.
__device__ inline void warpgroup_barrier(uint32_t warpgroup) { ptx::named_barrier_sync(kSlabBarrier + warpgroup, 128); }

/// Waits until the scale warp before this one has filled its run of stages.
__device__ inline void await_scale_turn(uint32_t scale_warp) {
    ptx::named_barrier_sync(kScaleBarrier + scale_warp, 2 * kWarpSize);
}

/// Lets the next scale warp, in a circle, fill the stages that follow.
__device__ inline void pass_scale_turn(uint32_t scale_warp) {
    ptx::named_barrier_arrive(kScaleBarrier + (scale_warp + 1) % kScaleWarps, 2 * kWarpSize);
}

}  // namespace finegemm::device
