// Where a CTA's tiles come from: its scheduler, and for math warps the tile source, which is the scheduler itself or
// what the TMA warp publishes. Layer device.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/gemm/schedule.h>
#include <finegemm/device/pipeline/shared.cuh>
#include <finegemm/device/schedule/grouped_m.cuh>

namespace finegemm::device {

/// Tile scheduler: which tiles a CTA computes, one after the other, and which k-blocks of each.
template <typename S, GemmConfig C>
concept TileScheduler = requires(S scheduler, Tile& tile) {
    scheduler.template take<C>(tile);  // the next tile, if there is one
    scheduler.k.size();                // k-blocks of the tile that was taken last
    scheduler.rank;                    // of the CTA in its cluster
    S::published();                    // math warps learn of the tiles from the TMA warp
    S::begun_early();                  // loads of the first tile are issued during set-up
    S::any_k_range();                  // a tile may begin at any k-block
};

/// Tile source: where a math warp learns of the tiles.
template <typename T, GemmConfig C>
concept TileSource = requires(T tiles, Tile& tile, RingCursor<C.stages> at) {
    tiles.take(tile, at);  // the next tile, if there is one, whose first block is in stage `at`
    tiles.k_blocks;        // of the tile that was taken last
    T::ragged();           // a warpgroup may have no rows of a tile
};

/// The tile scheduler of this CTA. Its kind follows from the kind of the parameters. `first_ends`: of the first spans
/// of rows, which a kernel for groups of rows has loaded during set-up.
template <GemmConfig C>
__device__ DenseScheduler scheduler_of(const SegmentedParams& p, GroupLayout::Ends /*first_ends*/ = {}) {
    const uint32_t rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
    return DenseScheduler::of<C>(p.raster, p.m, p.k_blocks, blockIdx.x, gridDim.x, rank);
}
template <GemmConfig C>
__device__ GroupedMScheduler scheduler_of(const GroupedParams& p, GroupLayout::Ends first_ends) {
    const uint32_t rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
    return GroupedMScheduler::of<C>(p, first_ends, blockIdx.x, gridDim.x, rank);
}
template <GemmConfig C>
__device__ GroupedKScheduler scheduler_of(const KGroupedParams& p, GroupLayout::Ends /*first_ends*/ = {}) {
    return GroupedKScheduler::of<C>(p.raster, p.k_groups(), p.m, blockIdx.x, gridDim.x);
}
template <GemmConfig C>
__device__ PieceScheduler scheduler_of(const SummedParams& p, GroupLayout::Ends /*first_ends*/ = {}) {
    return {.order = p.raster,
            .pieces = p.pieces,
            .k_blocks = p.k_blocks,
            .next = blockIdx.x,
            .stride = gridDim.x,
            .m = p.m};
}

/// Publishes a tile to the math warps, in an empty stage. A tile without rows is the end.
template <GemmConfig C>
__device__ inline void publish(const Shared<C>& smem, uint32_t stage, const Tile& tile) {
    ptx::store_shared_words_x4(smem.tile(stage), {{tile.row, tile.col, tile.rows, tile.group}});
}

/// Tile source of dense kernels: the math warps run the scheduler themselves.
template <GemmConfig C>
struct CountedTiles {
    FG_HD static constexpr bool ragged() { return false; }
    DenseScheduler scheduler;
    uint32_t k_blocks;  // of every tile

    __device__ explicit CountedTiles(const DenseScheduler& tiles) : scheduler(tiles), k_blocks(tiles.k.size()) {}
    __device__ bool take(Tile& out, RingCursor<C.stages>) { return scheduler.take<C>(out); }
};

/// Tile source of kernels for groups of rows: published in the stage of a tile's first block (load_grouped_tiles).
template <GemmConfig C>
struct PublishedTiles {
    FG_HD static constexpr bool ragged() {
        return true;
    }  // a warpgroup may have no rows of a tile; scales may be shifted
    const Shared<C>& smem;
    uint32_t k_blocks;
    uint32_t shift = 0;  // of the scales of the tile that was taken last

    __device__ bool take(Tile& out, RingCursor<C.stages> at) {
        wait(smem.full(at.stage), at.parity);
        const ptx::Words4 tile = ptx::load_shared_words_x4(smem.tile(at.stage));
        out = unpacked({.row = tile.w[0], .col = tile.w[1], .rows = tile.w[2], .group = tile.w[3]});
        shift = tile.w[3];
        return out.rows > 0;
    }
};

/// Tile source of kernels for groups of K and for pieces of it: published with the tile's number of k-blocks
/// (load_tiles).
template <GemmConfig C>
struct PublishedKTiles {
    FG_HD static constexpr bool ragged() { return false; }
    const Shared<C>& smem;
    uint32_t k_blocks = 0;  // of the tile that was taken last

    __device__ bool take(Tile& out, RingCursor<C.stages> at) {
        wait(smem.full(at.stage), at.parity);
        const ptx::Words4 tile = ptx::load_shared_words_x4(smem.tile(at.stage));
        out = unpacked({.row = tile.w[0], .col = tile.w[1], .rows = tile.w[2], .group = tile.w[3]});
        k_blocks = ptx::broadcast(tile.w[3]);
        return k_blocks > 0;  // none: the end
    }
};

}  // namespace finegemm::device
