// The named barriers of a CTA and who meets at them. Layer device.
#pragma once

#include <finegemm/core/arrivals.h>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

inline constexpr uint32_t kSetUpBarrier = 0;       // that of __syncthreads, too: a kernel uses it once
inline constexpr uint32_t kWarpgroupBarrier = 1;   // and 2, 3, one for each math warpgroup
inline constexpr uint32_t kTogetherBarrier = 4;    // at which nobody waits
inline constexpr uint32_t kFirstRoundBarrier = 5;  // at which the TMA warp waits for all that others have set up

/// All 128 threads of one math warpgroup.
__device__ inline void warpgroup_barrier(uint32_t warpgroup) {
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
}

/// After roles have parted and come together again. It does nothing but say that the lanes of each warp are together:
/// ptxas else moves what they share into uniform registers again and again, 10 to 60 times in a kernel.
template <GemmConfig C>
__device__ void meet_without_waiting() {
    ptx::named_barrier_arrive(kTogetherBarrier, C.threads());
}

}  // namespace finegemm::device
