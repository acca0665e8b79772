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
    multiply_tiles<C>(smem, CountedTiles<C>(scheduler), EpilogueOf<C>{p, smem, scheduler.rank, scheduler.k.size()});
}
template <GemmConfig C>
__device__ void multiply(const GroupedParams& p, const Shared<C>& smem) {
    multiply_tiles<C>(smem, PublishedTiles<C>{smem, p.k_blocks}, EpilogueOf<C>{p, smem});
}
template <GemmConfig C>
__device__ void multiply(const KGroupedParams& p, const Shared<C>& smem) {
    multiply_tiles<C>(smem, PublishedKTiles<C>{smem}, EpilogueOf<C>{p, smem});
}
template <GemmConfig C>
__device__ void multiply(const SummedParams& p, const Shared<C>& smem) {
    multiply_tiles<C>(smem, PublishedKTiles<C>{smem}, EpilogueOf<C>{p, smem});
}

/// The role of a producer warp.
template <GemmConfig C, TileScheduler<C> Scheduler>
__device__ void produce(const Params<C>& p, const Shared<C>& smem, const Scheduler& scheduler) {
    const uint32_t warp = ptx::broadcast(threadIdx.x % 128 / kWarpSize);
    if constexpr (kPlan<C>.producers == Producers::RoundRobin) load_round_robin<C>(p, smem, scheduler, warp);
    else if (warp > 0) produce_scales<C>(p, smem, scheduler, warp - 1);
    else load_tiles<C>(p, smem, scheduler);
}

/// The role of a math warp.
template <GemmConfig C>
__device__ void consume(const Params<C>& p, const Shared<C>& smem) {
    constexpr RegisterPlan kRegisters = kPlan<C>.registers;
    if constexpr (kRegisters.move()) ptx::setmaxnreg_inc<kRegisters.math>();
    else __syncwarp();  // as setmaxnreg does: ptxas else takes the warp for one whose lanes may have parted
    multiply<C>(p, smem);
    finish_stores<C>();
}

template <GemmConfig C>
__device__ void gemm(const Params<C>& p) {
    const auto smem = Shared<C>::claim();
    const GroupLayout::Ends first_ends = set_up<C>(p, smem);
    // Nothing is written above, and nothing read but B before the kernels before this one have ended. The next kernel's
    // CTAs start when all of this grid have come here, so that they take no room from them. Where they look at what is
    // reported, counts are zero by then: producers have waited for the kernels before.
    if (!C.reports_rows || is_producer<C>(p)) ptx::grid_launch_dependents();
    // Dense kernels wait for the previous kernels where they load (load_first_round, load_round_robin, load_scales):
    // all of that has landed when a math warp goes on, which then needs no wait of its own. Math warps that load the
    // old D, or C, wait here.
    if constexpr (kPlan<C>.waits_before_roles) ptx::grid_dependency_wait();
    if (is_producer<C>(p)) {
        start_producer<C>(p);
        produce<C>(p, smem, scheduler_of<C>(p, first_ends));
    } else {
        start_consumer<C>(p);
        consume<C>(p, smem);
    }
    // Neighbours still arrive at this CTA's barriers: none may leave before all are done.
    if constexpr (kPlan<C>.producers_served > 1) {
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
}

}  // namespace finegemm::device
