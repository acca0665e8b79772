// The named barriers of a CTA and who meets at them. Layer device.
#pragma once

#include <finegemm/core/config.h>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

inline constexpr uint32_t kMaxMathWarpgroups = 4;
inline constexpr uint32_t kSlabBarrier = 1;                                     // 0 is __syncthreads
inline constexpr uint32_t kTurnBarrier = kSlabBarrier + kMaxMathWarpgroups;     // "warpgroup w may use the tensor cores"

/// All 128 threads of one math warpgroup.
__device__ inline void warpgroup_barrier(uint32_t warpgroup) { ptx::named_barrier_sync(kSlabBarrier + warpgroup, 128); }

/// Waits until the warpgroup before this one has passed the turn on.
__device__ inline void await_turn(uint32_t warpgroup) { ptx::named_barrier_sync(kTurnBarrier + warpgroup, 256); }

/// Passes the turn to the next warpgroup, in a circle.
template <GemmConfig C>
__device__ inline void pass_turn(uint32_t warpgroup) {
    ptx::named_barrier_arrive(kTurnBarrier + (warpgroup + 1) % C.math_warpgroups, 256);
}

}  // namespace finegemm::device
