// The kernel of the product before a norm as a table of contents: set up, load, choose a role. Layer device.
#pragma once

#include <finegemm/device/prenorm/load.cuh>
#include <finegemm/device/prenorm/squares.cuh>
#include <finegemm/device/prenorm/sum.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>

namespace finegemm::device {

/// All but those of the first loads, by one thread.
template <PrenormConfig C>
__device__ void make_other_barriers(const PrenormParams& p, const PrenormShared<C>& smem) {
    for (uint32_t stage = 0; stage < C.stages(); ++stage) {
        ptx::mbarrier_init(smem.split(stage), C.splitters() * kLanesArrive);
        ptx::mbarrier_init(smem.empty(stage), (C.warpgroups() * 4 + C.squarers()) * kLanesArrive);
    }
    const bool is_alone = p.cluster_log2 == 0;  // then warps arrive, else threads of the cluster
    for (uint32_t warpgroup = 0; warpgroup < C.warpgroups(); ++warpgroup) {
        ptx::mbarrier_init(smem.parts_full(warpgroup), is_alone ? (4 + C.squarers()) * kLanesArrive : 1);
        ptx::mbarrier_init(smem.parts_free(warpgroup), is_alone ? 4 * kLanesArrive : p.cluster());
    }
    ptx::fence_mbarrier_init();
}

/// Barriers of loads, and the first ones; by the warp that loads. Nothing is read before the kernels before this one
/// have ended.
template <PrenormConfig C>
__device__ void begin_loads(PrenormLoader<C>& loader, const PrenormShared<C>& smem) {
    if (threadIdx.x % kWarpSize == 0) {
        for (uint32_t stage = 0; stage < C.stages(); ++stage) ptx::mbarrier_init(smem.loaded(stage), 1);
        ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::grid_dependency_wait();
    loader.first_round();
}

template <PrenormConfig C>
__device__ void prenorm(const PrenormParams& p) {
    const PrenormShared<C> smem{ptx::dynamic_shared()};
    const uint32_t rank = ptx::broadcast(ptx::cluster_rank()), warp = ptx::broadcast(threadIdx.x / kWarpSize);
    constexpr uint32_t kSquares = C.warpgroups() * 4, kLoader = kSquares + C.squarers(), kZeros = kLoader + 1;
    ptx::grid_launch_dependents();
    PrenormLoader<C> loader(p, smem, rank);
    if (warp == kLoader) begin_loads(loader, smem);
    if (threadIdx.x == 0) make_other_barriers(p, smem);
    __syncwarp();
    __syncthreads();
    ptx::cluster_arrive_relaxed();
    ptx::grid_dependency_wait();
    if (warp < kSquares) PrenormMath<C>(p, smem, rank, warp / 4).run();
    else if (warp < kLoader) PrenormSquares<C>(p, smem, rank, threadIdx.x - kSquares * kWarpSize).run();
    else if (warp == kLoader) loader.rest();
    else if (warp == kZeros) store_zeros(p);
    else split_stages(p, smem, rank, warp - kZeros - 1);
}

}  // namespace finegemm::device
