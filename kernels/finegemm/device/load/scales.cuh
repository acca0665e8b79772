// The role of a scale warp, with the loader that the plan names. Layer device.
#pragma once

#include <finegemm/device/epilogue/padding.cuh>
#include <finegemm/device/epilogue/tile_reports.cuh>
#include <finegemm/device/epilogue/zero.cuh>
#include <finegemm/device/load/scales_async.cuh>
#include <finegemm/device/load/scales_split.cuh>
#include <finegemm/device/load/scales_vector.cuh>

namespace finegemm::device {

/// Loads scales of any layout. Each scale warp owns every third stage, so that it sees every round of its own. Nobody
/// waits for the copies: the last one to land completes the barrier.
template <GemmConfig C, typename Scheduler, typename Scales = ScalesOf<C>>
    requires(!C.swaps_mx)
__device__ void copy_scales_async(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler, uint32_t scale_warp) {
    auto at = RingCursor<C.stages>::producer();
    uint32_t begun = 0;  // blocks of the tile that FirstCopies has begun
    if constexpr (Scheduler::begun_early()) begun = first_round(scheduler.k, C.stages).size();
    TileReports<C> reports;
    for (Tile tile; scheduler.template take<C>(tile); begun = 0) {
        zero_if_empty<C>(p, scheduler, tile, scale_warp);
        reports.begin(p, tile);
        ScaleLoader<C> auto scales = Scales(p, tile, scheduler.k.begin + begun);
        if (Scheduler::begun_early()) at += begun;
#pragma unroll 1
        for (uint32_t kb = scheduler.k.begin + begun; kb < scheduler.k.end; ++kb, ++at) {
            if (at.stage % kScaleWarps == scale_warp) {
                scales.load();
                wait(smem.empty(at.stage), at.parity);
                scales.fill(smem, at.stage);
                reports.report_if_stored(p, kb);
            }
            scales.advance(p);
        }
    }
    if (at.stage % kScaleWarps == scale_warp) end_scales<Scheduler>(smem, at);
    reports.end(p, scale_warp);
}

/// MX scales beside few rows, which come through registers: a warp has loads of several of its k-blocks in flight, as
/// memory takes longer than until its next turn, and longer still behind the operands of a whole ring. Warps have
/// k-blocks in turn, tile after tile. Kernels for more rows gain nothing from that, or lose 2%.
template <GemmConfig C, typename Scheduler>
    requires(C.swaps_mx)
__device__ void copy_scales_async(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler, uint32_t scale_warp) {
    static_assert(kScaleWarps <= C.stages, "a parity tells a round of the ring from the next one only");
    constexpr uint32_t kBlocks = kMxBlocks<C>;
    auto at = RingCursor<C.stages>::producer();
    at += scale_warp;
    uint32_t skip = scale_warp;  // blocks before this warp's next one
    for (Tile tile; scheduler.template take<C>(tile);) {
        const uint32_t end = scheduler.k.end;
        uint32_t kb = scheduler.k.begin + skip;
        MxScaleLoads<C> scales(p, tile, kb);
#pragma unroll
        for (uint32_t i = 0; i < kBlocks; ++i)
            if (kb + i * kScaleWarps < end) scales.load(p, i, i * kScaleWarps);
        while (kb < end) {
#pragma unroll
            for (uint32_t i = 0; i < kBlocks; ++i) {
                if (kb >= end) break;
                wait(smem.empty(at.stage), at.parity);
                scales.fill(smem, at.stage, i);
                if (kb + kBlocks * kScaleWarps < end) scales.load(p, i, kBlocks * kScaleWarps);
                scales.advance(p, kScaleWarps);
                kb += kScaleWarps, at += kScaleWarps;
            }
        }
        skip = kb - end;
    }
    if (skip == 0) end_scales<Scheduler>(smem, at);
}

/// Loads row-major scales as vectors: sixteen bytes of a row serve four k-blocks. Copied one by one they would be
/// fetched four times, and land in shared memory one at a time. The warps own vectors round-robin; a group of k-blocks
/// may have only a part of its first and last one.
template <GemmConfig C, typename Scheduler>
__device__ void load_scales_vectorised(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler,
                                       uint32_t scale_warp) {
    if (!Scheduler::any_k_range() && scale_warp >= kPlan<C>.vector_scale_warps) return;
    using Vector = VectorOf<C>;
    uint32_t begun = Scheduler::begun_early() ? 1 : 0;  // vectors of the tile that FirstVector has loaded
    uint32_t owner = begun % kPlan<C>.vector_scale_warps;
    auto at = RingCursor<C.stages>::producer();
    for (Tile tile; scheduler.template take<C>(tile); begun = 0) {
        zero_if_empty<C>(p, scheduler, tile, scale_warp);
        const uint32_t first =
            Scheduler::any_k_range() ? first_vector(scheduler.k, Vector::kBlocks) : scheduler.k.begin;
        if (Scheduler::begun_early()) at += begun * Vector::kBlocks;
#pragma unroll 1
        for (uint32_t kb = first + begun * Vector::kBlocks; kb < scheduler.k.end;
             kb += Vector::kBlocks, owner = (owner + 1) % kPlan<C>.vector_scale_warps) {
            Vector vector;
            if (owner == scale_warp) vector.load(p, tile, kb);
#pragma unroll
            for (uint32_t j = 0; j < Vector::kBlocks; ++j) {
                if (Scheduler::any_k_range() && (kb + j < scheduler.k.begin || kb + j >= scheduler.k.end)) continue;
                if (owner == scale_warp) {
                    wait(smem.empty(at.stage), at.parity);
                    vector.fill(j, smem, at.stage);
                }
                ++at;
            }
        }
    }
    if (owner == scale_warp) end_scales<Scheduler>(smem, at);
}

/// Waits for previous kernels, unless all warps of the kernel have done so before roles part.
__device__ inline void wait_where_loading(const SegmentedParams&) { ptx::grid_dependency_wait(); }
__device__ inline void wait_where_loading(const GroupedParams&) {}
__device__ inline void wait_where_loading(const KGroupedParams&) {}

/// The role of a scale warp. It reads any layout of the scales, without a kernel before this one. Math warps on the
/// same SM sub-partition wait for every instruction here, so there are few.
template <GemmConfig C, typename Scheduler>
__device__ void load_scales(const Params<C>& p, const Shared<C>& smem, const Scheduler& scheduler,
                            uint32_t scale_warp) {
    wait_where_loading(p);
    if constexpr (C.scales == ScaleLayout::Rows) load_scales_vectorised<C>(p, smem, scheduler, scale_warp);
    else copy_scales_async<C>(p, smem, scheduler, scale_warp);
}

/// Rows of A that are found by numbers come with their scales. A function of its own: the code of other kernels would
/// be ordered otherwise.
template <GemmConfig C, typename Scheduler>
    requires(finds_rows(C.finish))
__device__ void load_scales(const Params<C>& p, const Shared<C>& smem, const Scheduler& scheduler,
                            uint32_t scale_warp) {
    wait_where_loading(p);
    if (numbers_of_a(static_cast<const KernelParams<C>&>(p)))
        copy_scales_async<C, Scheduler, NumberedRowScales<C>>(p, smem, scheduler, scale_warp);
    else copy_scales_async<C, Scheduler>(p, smem, scheduler, scale_warp);
}

/// Without scales the scale warps do what else is theirs: they zero D of groups without k-blocks.
template <GemmConfig C, typename Scheduler>
__device__ void zero_empty_tiles(const GemmParams&, const Scheduler&, uint32_t) {}
template <GemmConfig C>
__device__ void zero_empty_tiles(const KGroupedParams& p, GroupedKScheduler scheduler, uint32_t scale_warp) {
    for (Tile tile; scheduler.template take<C>(tile);) zero_if_empty<C>(p, scheduler, tile, scale_warp);
}

/// The role of a warp that is not the TMA warp.
template <GemmConfig C, typename Scheduler>
__device__ void produce_scales(const Params<C>& p, const Shared<C>& smem, const Scheduler& scheduler,
                               uint32_t scale_warp) {
    zero_padding<C>(p, scale_warp);
    if constexpr (kPlan<C>.scale_path == ScalePath::None) zero_empty_tiles<C>(p, scheduler, scale_warp);
    else load_scales<C>(p, smem, scheduler, scale_warp);
}

}  // namespace finegemm::device
