// The GEMM kernel as a table of contents: set up, choose a role, walk over tiles.
// Layer device. docs/kernel.md has the picture.
#pragma once

#include <finegemm/core/registers.h>
#include <finegemm/device/load.cuh>
#include <finegemm/device/load_scales.cuh>
#include <finegemm/device/split_store.cuh>
#include <finegemm/device/store.cuh>
#include <finegemm/device/store_f32.cuh>
#include <finegemm/device/teams.cuh>

namespace finegemm::device {

/// The tiles of this CTA, for the roles that count them out.
template <GemmConfig C>
__device__ auto walk_of(const Params<C>& p, RowRange first_rows) {
    const uint32_t rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
    if constexpr (C.row_groups()) return GroupWalk::of<C>(p, first_rows, blockIdx.x, gridDim.x, rank);
    else if constexpr (C.k_groups()) return KGroupWalk::of<C>(p.raster, p.k_groups(), p.m, blockIdx.x, gridDim.x);
    else return Walk::of<C>(p.raster, p.m, p.k_blocks, blockIdx.x, gridDim.x, rank);
}

template <GemmConfig C>
__device__ void multiply(const Params<C>& p, const Shared<C>& smem) {
    if constexpr (C.row_groups()) {
        multiply_tiles<C>(smem, AnnouncedTiles<C>{smem, p.k_blocks},
                          [&](Accumulator<C>& acc, const Tile& tile) { store_tile<C>(p, acc, smem, tile); });
    } else if constexpr (C.k_groups()) {
        multiply_tiles<C>(smem, AnnouncedKTiles<C>{smem},
                          [&](Accumulator<C>& acc, const Tile& tile) { store_tile_f32<C>(p, acc, smem, tile); });
    } else {
        const Walk walk = walk_of<C>(p, {});
        multiply_tiles<C>(smem, CountedTiles<C>(walk), [&](Accumulator<C>& acc, const Tile& tile) {
            if constexpr (C.teams() > 1)
                if (!add_teams<C>(acc, smem, walk.k.size())) return;
            if constexpr (C.k_splits() > 1) store_split_tile<C>(p, acc, smem, tile, walk.rank);
            else if constexpr (C.output == Output::F32) store_tile_f32<C>(p, acc, smem, tile);
            else store_tile<C>(p, acc, smem, tile);
        });
    }
}

/// By the TMA warp, whose first loads then need not wait for them.
template <GemmConfig C>
__device__ void prefetch_tensor_maps(const Params<C>& p) {
    const uint32_t lane = threadIdx.x % kWarpSize;
    if (lane == kRowBoxes) ptx::prefetch_tensor_map(!C.row_groups() && p.m < C.tile_m ? &p.a.last : &p.a.whole);
    if (lane == kRowBoxes + 1) ptx::prefetch_tensor_map(&p.b.whole);
    if constexpr (runs(C) > 1)
        if (lane >= kRowBoxes + 2 && lane < kRowBoxes + 1 + runs(C))
            ptx::prefetch_tensor_map(&p.b_runs[lane - (kRowBoxes + 2)]);
    if constexpr (C.row_groups())
        if (lane < kRowBoxes) ptx::prefetch_tensor_map(&p.a_rows[lane]);
}

template <GemmConfig C>
__device__ void gemm(const Params<C>& p) {
    constexpr RegisterPlan kRegisters = register_plan(C);
    const auto smem = Shared<C>::claim();
    if (threadIdx.x / kWarpSize == C.math_warpgroups * 4) prefetch_tensor_maps<C>(p);
    RowRange first_rows;
    if constexpr (C.row_groups()) {
        ptx::grid_dependency_wait();
        first_rows = GroupWalk::rows_of_lane(p, 0);
    }
    init_barriers(smem);
    // Nothing of the matrices is read or written above. The next kernel's CTAs start when all of this grid have come
    // here, so that they take no room from them.
    ptx::grid_launch_dependents();
    // Dense kernels wait in load_tiles and load_scales: what they load has come when a math warp goes on, which then
    // needs no wait of its own.
    if constexpr (C.k_groups()) ptx::grid_dependency_wait();
    if (threadIdx.x / 128 == C.math_warpgroups) {
        if constexpr (kRegisters.load < kRegisters.launch) ptx::setmaxnreg_dec<kRegisters.load>();
        const auto walk = walk_of<C>(p, first_rows);
        const uint32_t warp = ptx::broadcast(threadIdx.x % 128 / kWarpSize);
        if (warp > 0) load_scales<C>(p, smem, walk, warp - 1);
        else if constexpr (C.row_groups()) load_grouped_tiles<C>(p, smem, walk);
        else if (ptx::elect_one()) load_tiles<C>(p, smem, walk);
    } else {
        if constexpr (kRegisters.math > kRegisters.launch) ptx::setmaxnreg_inc<kRegisters.math>();
        else __syncwarp();  // as setmaxnreg does: ptxas else takes the warp for one whose lanes may have parted
        multiply<C>(p, smem);
    }
    // Neighbours still arrive at this CTA's barriers: none may leave before all are done.
    if constexpr (producers_served(C) > 1) {
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
}

}  // namespace finegemm::device
