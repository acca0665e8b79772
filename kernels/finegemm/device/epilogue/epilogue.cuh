// The epilogue of each kernel: what the main loop calls with the sums of a tile. Layer device.
// The plan's store chooses it, in one line (EpilogueOf).
#pragma once

#include <finegemm/device/either.cuh>
#include <finegemm/device/epilogue/affine.cuh>
#include <finegemm/device/epilogue/gated.cuh>
#include <finegemm/device/epilogue/head_gaps.cuh>
#include <finegemm/device/epilogue/indexed.cuh>
#include <finegemm/device/epilogue/source_tile.cuh>
#include <finegemm/device/epilogue/split_k.cuh>
#include <finegemm/device/epilogue/store_bf16.cuh>
#include <finegemm/device/epilogue/store_f32.cuh>
#include <finegemm/device/epilogue/store_swapped.cuh>
#include <finegemm/device/epilogue/tile_reports.cuh>
#include <finegemm/device/mma/k_slices.cuh>

namespace finegemm::device {

/// Stores a tile in bf16, by strips or by TMA.
template <GemmConfig C>
struct Bf16Epilogue {
    const Params<C>& p;
    const Shared<C>& smem;
    uint32_t rank, k_blocks;  // of a CTA in its cluster; of a tile of a dense product

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}
    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) const {
        if constexpr (C.k_slices() > 1)  // has_tile_sums makes ptxas spill in tiles of 128x224
            if (!add_k_slices<C>(acc, smem, k_blocks)) return;
        store_tile<C>(p, acc, smem, tile);
    }
};

/// Stores a tile in f32, by strips.
template <GemmConfig C>
struct F32Epilogue {
    const Params<C>& p;
    const Shared<C>& smem;
    uint32_t rank, k_blocks;

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}
    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) const {
        if (!has_tile_sums<C>(acc, smem, k_blocks)) return;
        store_tile_f32<C>(p, acc, smem, tile);
    }
};

/// Reduces a tile over a cluster.
template <GemmConfig C>
struct SplitKEpilogue {
    const Params<C>& p;
    const Shared<C>& smem;
    uint32_t rank, k_blocks;

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}
    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) const {
        if (!has_tile_sums<C>(acc, smem, k_blocks)) return;
        split_k_reduce<C>(p, acc, smem, tile, rank);
    }
};

/// The epilogue of a kernel.
template <GemmConfig C>
using EpilogueOf =
    Either<C.finish == Finish::Affine, AffineEpilogue<C>,
           Either<C.finish == Finish::HeadGaps, HeadGapsEpilogue<C>,
                  Either<C.finish == Finish::Gated, GatedEpilogue<C>,
                         Either<C.finish == Finish::Indexed, IndexedEpilogue<C>,
                                Either<kPlan<C>.loads_source(), SourceTileEpilogue<C>,
                                       Either<kPlan<C>.store == Store::SplitK, SplitKEpilogue<C>,
                                              Either<C.output == Output::F32, F32Epilogue<C>,
                                                     Either<C.swapped(), SwappedEpilogue<C>, Bf16Epilogue<C>>>>>>>>>;

/// Waits, before the CTA ends, until TMA has read its shared memory.
template <GemmConfig C>
__device__ void finish_stores() {
    if (kPlan<C>.tma_store()) ptx::bulk_wait_read();
    TileReports<C>::end_stores();
}

}  // namespace finegemm::device
