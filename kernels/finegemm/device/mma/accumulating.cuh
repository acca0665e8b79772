// The main loop without scales: the tensor cores add all k-blocks of a tile to its sums. Layer device.
#pragma once

#include <finegemm/device/mma/consumer.cuh>

namespace finegemm::device {

/// Starts the products of a k-block, which are added to the sums unless it is the first of its tile.
template <GemmConfig C>
__device__ inline void start_accumulating(Accumulator<C>& acc, const Consumer<C>& consumer, uint32_t stage, bool add) {
    ptx::wgmma_fence();
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
        const Operands at = consumer.operands(stage, i);
        ptx::wgmma_k64<C.a.major == Major::MN, C.b.major == Major::MN>(acc.sum[i], wgmma_descriptor_with(at.a),
                                                                       wgmma_descriptor_with(at.b), add);
    }
    ptx::wgmma_commit_group();
}

/// The tensor cores work on a k-block while this warpgroup waits for the next one; a stage is released when the block
/// after it has been started. Consumer warpgroups need no hand-over: each has enough work in flight.
template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
__device__ void mainloop_accumulating(const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks,
                                      Epilogue&& epilogue) {
    Accumulator<C> acc;
    for (bool more = true; more;) {
        const Tile tile = blocks.tile;
        uint32_t requested = 0, stage = blocks.at.stage;
        wait(consumer.smem.full(stage), blocks.at.parity);
        start_accumulating(acc, consumer, stage, false);
#pragma unroll 1
        while (!blocks.last_of_tile()) {
            blocks.next();
            wait(consumer.smem.full(blocks.at.stage), blocks.at.parity);
            start_accumulating(acc, consumer, blocks.at.stage, true);
            ptx::wgmma_wait_group<1>();
            consumer.release(stage);
            stage = blocks.at.stage;
            epilogue.load_source(tile, requested, 2);
        }
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
#pragma unroll
            for (uint32_t r = 0; r < Accumulator<C>::kRegisters; ++r) ptx::pin(acc.sum[i][r]);
        consumer.release(stage);
        epilogue.load_source(tile, requested, d_panels(C));
        epilogue(acc, tile);
        more = blocks.next() || (Tiles::ragged() && blocks.skip_to_rows());
    }
}

}  // namespace finegemm::device
