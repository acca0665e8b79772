// The GEMM kernel as a table of contents: set up, choose a role, walk over tiles.
// Layer device. docs/kernel.md has the picture.
#pragma once

#include <finegemm/core/registers.h>
#include <finegemm/device/load.cuh>
#include <finegemm/device/split_store.cuh>
#include <finegemm/device/store.cuh>

namespace finegemm::device {

template <GemmConfig C>
__device__ void gemm(const GemmParams& p) {
    constexpr RegisterPlan kRegisters = register_plan(C);
    const auto smem = Shared<C>::claim();
    if (threadIdx.x == C.math_warpgroups * 128) {  // of the TMA warp: its first loads need not wait for these
        ptx::prefetch_tensor_map(p.m < C.tile_m ? &p.a.last : &p.a.whole);
        ptx::prefetch_tensor_map(&p.b.whole);
    }
    init_barriers(smem);
    // Nothing of the matrices is read or written above. The next kernel's CTAs start when all of this grid have come
    // here, so that they take no room from them.
    ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
    const auto walk = Walk::of<C>(p.raster, p.k_blocks, blockIdx.x, gridDim.x, C.cluster > 1 ? ptx::cluster_rank() : 0);
    if (threadIdx.x / 128 == C.math_warpgroups) {
        if constexpr (kRegisters.load < kRegisters.launch) ptx::setmaxnreg_dec<kRegisters.load>();
        const uint32_t warp = ptx::broadcast(threadIdx.x % 128 / kWarpSize);
        if (warp > 0) load_scales<C>(p, smem, walk, warp - 1);
        else if (ptx::elect_one()) load_tiles<C>(p, smem, walk);
    } else {
        if constexpr (kRegisters.math > kRegisters.launch) ptx::setmaxnreg_inc<kRegisters.math>();
        multiply_tiles<C>(smem, walk, [&](const Accumulator<C>& acc, TileCoord tile) {
            if constexpr (C.k_splits() > 1) store_split_tile<C>(p, acc, smem, tile, walk.rank);
            else store_tile<C>(p, acc, smem, tile);
        });
    }
    // Neighbours still arrive at this CTA's barriers: none may leave before all are done.
    if constexpr (producers_served(C) > 1) {
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
}

}  // namespace finegemm::device
