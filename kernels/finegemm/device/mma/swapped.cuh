// The main loop of swapped products: sums of 64 columns of D and of all rows of a tile. Layer device.
#pragma once

#include <finegemm/device/mma/consumer.cuh>

namespace finegemm::device {

/// Starts the products of a k-block with the first `Rows` rows of a tile, which are added to the sums unless it is the
/// tile's first block.
template <uint32_t Rows, GemmConfig C>
__device__ inline void start_swapped(float (&sum)[Rows / 2], const Consumer<C>& consumer, uint32_t stage, bool add) {
    const Operands at = consumer.operands(stage, 0);
    ptx::wgmma_fence();
    ptx::wgmma_k64<C.b.major == Major::MN, C.a.major == Major::MN>(sum, wgmma_descriptor_with(at.a),
                                                                   wgmma_descriptor_with(at.b), add);
    ptx::wgmma_commit_group();
}

/// The sums of a tile that has at most `Rows` rows: the tensor cores work on a k-block while this warpgroup waits for
/// the next one. How many rows a WGMMA has is part of the instruction: there is a loop for each number.
template <uint32_t Rows, GemmConfig C, typename Tiles>
__device__ void multiply_rows(Accumulator<C>& acc, const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks) {
    if (Rows < C.tile_m && blocks.tile.rows > Rows)
        return multiply_rows<min(Rows + kSwappedStep, C.tile_m)>(acc, consumer, blocks);
    auto& sum = reinterpret_cast<float (&)[Rows / 2]>(acc.sum[0]);
    uint32_t stage = blocks.at.stage;
#pragma unroll 1
    for (bool first = true;; first = false) {
        wait(consumer.smem.full(blocks.at.stage), blocks.at.parity);
        start_swapped<Rows>(sum, consumer, blocks.at.stage, !first);
        ptx::wgmma_wait_group<1>();
        if (!first) consumer.release(stage);
        stage = blocks.at.stage;
        if (blocks.last_of_tile()) break;
        blocks.next();
    }
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (uint32_t r = 0; r < Rows / 2; ++r) ptx::pin(sum[r]);
    consumer.release(stage);
}

template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
    requires(C.swapped())
__device__ void mainloop_accumulating(const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks,
                                      Epilogue&& epilogue) {
    Accumulator<C> acc;
    do {
        const Tile tile = blocks.tile;
        multiply_rows<kSwappedStep>(acc, consumer, blocks);
        epilogue(acc, tile);
    } while (blocks.next());
}

}  // namespace finegemm::device
