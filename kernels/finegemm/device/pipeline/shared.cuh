// Addresses of everything in a GEMM kernel's shared memory. Layer device; offsets come from the KernelPlan.
#pragma once

#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/device/pipeline/wait.cuh>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>

namespace finegemm::device {

using ptx::SmemAddr;

template <GemmConfig C>
struct Shared {
    static constexpr SmemPlan kAt = kPlan<C>.smem;
    SmemAddr base;

    /// Claims the dynamic shared memory. Offsets are equal in all CTAs of a cluster, since all have as much.
    __device__ static Shared claim() { return {ptx::dynamic_shared()}; }

    __device__ SmemAddr a(uint32_t stage) const { return base + (kAt.a + stage * kAt.a_stage); }
    __device__ SmemAddr b(uint32_t stage) const { return base + (kAt.b + stage * kAt.b_stage); }
    __device__ SmemAddr sfa(uint32_t stage) const { return base + (kAt.sfa + stage * kAt.sfa_stage); }
    __device__ SmemAddr sfb(uint32_t stage) const { return base + (kAt.sfb + stage * kAt.sfb_stage); }
    __device__ SmemAddr zeros(uint32_t warpgroup) const {
        return base + (kAt.zeros + warpgroup * kZeroRows * kSplitScaleBytes);
    }
    __device__ SmemAddr tile(uint32_t stage) const { return base + (kAt.tiles + stage * kAt.tile_stage); }
    __device__ SmemAddr full(uint32_t stage) const { return base + (kAt.full + stage * 8); }
    __device__ SmemAddr empty(uint32_t stage) const { return base + (kAt.empty + stage * 8); }
    __device__ SmemAddr d(uint32_t warp) const { return base + (kAt.d + warp * kAt.d_warp); }
    __device__ SmemAddr partials(uint32_t warpgroup) const {
        return base + (kAt.partials + warpgroup * kAt.partials_warpgroup);
    }
    __device__ SmemAddr d_full(uint32_t warp) const { return base + (kAt.d_full + warp * 8); }
    /// What the neighbour of a math warp sends it in a turn (kLargestTurns), and the barrier that says that it came.
    __device__ SmemAddr largest(uint32_t warp, uint32_t turn) const {
        return base + (kAt.largest + (warp * kLargestTurns + turn) * kWarpRows * 4);
    }
    __device__ SmemAddr largest_full(uint32_t warp, uint32_t turn) const {
        return base + (kAt.largest_full + (warp * kLargestTurns + turn) * 8);
    }
    __device__ SmemAddr slice_sums_full() const { return base + kAt.slice_sums_full; }
    __device__ SmemAddr partials_full(uint32_t warpgroup) const { return base + (kAt.partials_full + warpgroup * 8); }
};

/// The barriers that loads and copies arrive at; by one thread, one after the other.
template <GemmConfig C>
__device__ void make_full_barriers(const Shared<C>& smem) {
    for (uint32_t stage = 0; stage < C.stages; ++stage) ptx::mbarrier_init(smem.full(stage), kPlan<C>.arrivals.full);
    ptx::fence_mbarrier_init();
}

/// All others; by one thread.
template <GemmConfig C>
__device__ void make_other_barriers(const Shared<C>& smem) {
    for (uint32_t stage = 0; stage < C.stages; ++stage) ptx::mbarrier_init(smem.empty(stage), kPlan<C>.arrivals.empty);
    constexpr Barriers kOthers = kPlan<C>.barriers;
    for (uint32_t w = 0; w != kOthers.partials; ++w) ptx::mbarrier_init(smem.partials_full(w), 1);
    for (uint32_t i = 0; i != kOthers.slice_sums; ++i)
        ptx::mbarrier_init(smem.slice_sums_full(), kPlan<C>.arrivals.slice_sums);
    for (uint32_t warp = 0; warp != kOthers.source; ++warp) ptx::mbarrier_init(smem.d_full(warp), 1);
    if (kOthers.largest > 0)
        for (uint32_t i = 0; i < kOthers.largest; ++i) ptx::mbarrier_init(smem.largest_full(0, i), 1);
    ptx::fence_mbarrier_init();
}

}  // namespace finegemm::device
