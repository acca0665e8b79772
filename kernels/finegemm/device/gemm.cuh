// The GEMM kernel as a table of contents: set up, choose a role, walk over tiles.
// Layer device. docs/pipeline.md has the picture.
#pragma once

#include <finegemm/device/epilogue/epilogue.cuh>
#include <finegemm/device/load/round_robin.cuh>
#include <finegemm/device/load/scales.cuh>
#include <finegemm/device/setup.cuh>

namespace finegemm::device {

/// The role of a math warpgroup: all tiles of the CTA, with the tile source and the epilogue of the kernel.
template <GemmConfig C>
__device__ void multiply(const SegmentedParams& p, const Shared<C>& smem) {
    const DenseScheduler scheduler = scheduler_of<C>(p);
    if constexpr (kPlan<C>.loads_source())
        multiply_tiles<C>(smem, CountedTiles<C>(scheduler), SourceTileEpilogue<C>(p, smem));
    else
        multiply_tiles<C>(smem, CountedTiles<C>(scheduler),
                          StoreEpilogue<C>{p, smem, scheduler.rank, scheduler.k.size()});
}
template <GemmConfig C>
__device__ void multiply(const GroupedParams& p, const Shared<C>& smem) {
    multiply_tiles<C>(smem, PublishedTiles<C>{smem, p.k_blocks}, StoreEpilogue<C>{p, smem});
}
template <GemmConfig C>
__device__ void multiply(const KGroupedParams& p, const Shared<C>& smem) {
    if constexpr (kPlan<C>.loads_source())
        multiply_tiles<C>(smem, PublishedKTiles<C>{smem}, SourceTileEpilogue<C>(p, smem));
    else multiply_tiles<C>(smem, PublishedKTiles<C>{smem}, StoreEpilogue<C>{p, smem});
}

template <GemmConfig C>
__device__ void gemm(const Params<C>& p) {
    constexpr RegisterPlan kRegisters = kPlan<C>.registers;
    const auto smem = Shared<C>::claim();
    GroupLayout::Ends first_ends;
    if constexpr (C.row_groups()) {
        first_ends = set_up_and_begin<C>(p, smem);
    } else {
        if (threadIdx.x / kWarpSize == kTmaWarp<C> + 1) prefetch_tensor_maps<C>(p);
        if constexpr (C.k_groups()) set_up<C>(smem);
        else set_up_and_load<C>(p, smem);
    }
    // Nothing is written above, and nothing read but B before the kernels before this one have ended. The next kernel's
    // CTAs start when all of this grid have come here, so that they take no room from them.
    ptx::grid_launch_dependents();
    // Dense kernels wait for the previous kernels where they load (load_first_round, load_round_robin, load_scales):
    // all of that has landed when a math warp goes on, which then needs no wait of its own. Math warps that load the
    // old D, or indices of rows, wait here.
    if constexpr (C.grouped() || kPlan<C>.loads_source()) ptx::grid_dependency_wait();
    if (is_producer<C>()) {
        if constexpr (!C.row_groups() && kRegisters.load < kRegisters.launch) ptx::setmaxnreg_dec<kRegisters.load>();
        const auto scheduler = scheduler_of<C>(p, first_ends);
        const uint32_t warp = ptx::broadcast(threadIdx.x % 128 / kWarpSize);
        if constexpr (kPlan<C>.producers == Producers::RoundRobin) {
            load_round_robin<C>(p, smem, scheduler, warp);
        } else if (warp > 0) {
            load_scales<C>(p, smem, scheduler, warp - 1);
        } else if constexpr (C.row_groups()) {
            load_grouped_tiles<C>(p, smem, scheduler);
        } else if (ptx::elect_one()) {
            load_tiles<C>(p, smem, scheduler);
        }
    } else {
        if constexpr (C.row_groups())
            if (threadIdx.x / kWarpSize == 0 && ptx::elect_one()) prefetch_tensor_maps_of_groups<C>(p);
        if constexpr (kRegisters.math > kRegisters.launch) ptx::setmaxnreg_inc<kRegisters.math>();
        else __syncwarp();  // as setmaxnreg does: ptxas else takes the warp for one whose lanes may have parted
        multiply<C>(p, smem);
        finish_stores<C>();
    }
    // Neighbours still arrive at this CTA's barriers: none may leave before all are done.
    if constexpr (kPlan<C>.producers_served > 1) {
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
}

}  // namespace finegemm::device
