// The named barriers of a CTA and who meets at them. Layer device.
#pragma once

#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

inline constexpr uint32_t kSetUpBarrier = 0;       // that of __syncthreads, too: a kernel uses it once
inline constexpr uint32_t kWarpgroupBarrier = 1;   // and 2, 3, one for each math warpgroup
inline constexpr uint32_t kConvergeBarrier = 4;    // at which nobody waits
inline constexpr uint32_t kFirstRoundBarrier = 5;  // at which the TMA warp waits for all that others have set up
inline constexpr uint32_t kStoredBarrier = 6;      // at which a scale warp waits until math warps have stored all tiles

/// All 128 threads of one math warpgroup.
__device__ inline void warpgroup_barrier(uint32_t warpgroup) {
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
}

/// Tells ptxas that the lanes of each warp have converged again after the roles' branches, by an arrival at a barrier
/// at which nobody waits. Without it ptxas moves what lanes share into uniform registers again and again, 10 to 60
/// times in a kernel.
template <GemmConfig C>
__device__ void converge_hint() {
    ptx::named_barrier_arrive(kConvergeBarrier, C.threads());
}

}  // namespace finegemm::device
