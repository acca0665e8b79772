// The main loop of a math warpgroup: one k-block at a time, tensor cores inside a block, FP32 between blocks.
// Layer device.
#pragma once

#include <finegemm/device/epilogue/tile_reports.cuh>
#include <finegemm/device/mma/accumulating.cuh>
#include <finegemm/device/mma/mx_products.cuh>
#include <finegemm/device/mma/swapped.cuh>

namespace finegemm::device {

/// One block product in flight: while this warpgroup promotes, the tensor cores work for another one. The consumer
/// warpgroups alternate without a barrier, because the tensor cores finish their blocks one after the other; an
/// explicit hand-over cost 8%. The code between the end of a block and the start of the next one is the critical path,
/// so all else is done before.
template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
__device__ void mainloop_single(const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks, Epilogue&& epilogue) {
    // Promotions that read scales from the stage: it is released after them.
    constexpr bool kReadsStage = FactorsOf<C>::reads_stage();
    constexpr uint32_t kLast = C.wgmmas() - 1;
    Block<C> block;
    Scales scales;
    Accumulator<C> acc;
    Tile tile;
    uint32_t requested = 0;  // panels of the source tile (the old D) whose loads have been issued
    const auto start_tile = [&] {
        acc.clear();
        tile = blocks.tile;
        requested = 0;
    };
    // The tile has no rows for the last WGMMA of this warpgroup.
    const auto lacks_rows = [&] {
        return Tiles::ragged() && C.wgmmas_m() > 1 && tile.rows <= consumer.first_row + kLast * rows_apart(C);
    };
    const auto finish_tile = [&] {
        epilogue.load_source(tile, requested, d_panels(C));
        if (lacks_rows()) acc.move_last_to_first();
        epilogue(acc, tile);
    };
    const auto start_sequence = [&] {
        wait(consumer.smem.full(blocks.at.stage), blocks.at.parity);
        TransformOf<C>::apply(consumer.smem, blocks.at.stage);
        start_block(block, consumer.operands(blocks.at.stage, 0));
        scales = consumer.scales(blocks.at.stage, 0);
        start_tile();
    };
    // Promotes the i-th product of the block in `stage`, and starts the one after it, which is ready.
    const auto step = [&](uint32_t stage, uint32_t i, uint32_t next_stage, uint32_t next_i, bool last) {
        // Factors are computed here, not earlier: the promotion would begin sooner, and the other warpgroup's next
        // start, which cannot issue while a promotion does, later (128x192 tiles: 12% of the time).
        const auto factors = consumer.factors(scales, stage, i);
        scales = consumer.scales(next_stage, next_i);
        // ptxas takes lanes for parted in the only warpgroup of a tile with two WGMMAs side by side, and would move
        // addresses into uniform registers between the instructions of a product, 12 times in each.
        constexpr bool kParted = C.wgmmas_n() > 1 && C.math_warpgroups == 1;
        Operands operands = consumer.operands(kParted ? ptx::broadcast(next_stage) : next_stage, next_i);
        pin<C>(operands);
        finish_block<0>(block);
        if (last && !kReadsStage) consumer.release(stage);
        // The condition always holds. ptxas moves no instruction across the branch: it would else mix the promotion
        // with the code that starts the next block, and the tensor cores would wait (256x128 tiles: 13% of the time).
        // The operands of the condition are ready before it; three warpgroups have no registers for that (2%).
        constexpr bool kReady = C.math_warpgroups < 3 && !kReadsStage;
        const bool always = kReady ? operands.a != operands.b : stage < C.stages;
        if (always) promote<C>(acc.sum[i], block, factors);
        start_block(block, operands);
        if (last && kReadsStage) consumer.release(stage);
    };
    start_sequence();
#pragma unroll 1
    for (;;) {
        const uint32_t stage = blocks.at.stage;
        const bool ends = blocks.last_of_tile();
        // Where the tile lacks rows, the products of the first 64 go to the sums of the last 64: one code for both.
        if (!lacks_rows())
#pragma unroll
            for (uint32_t i = 0; i + 1 < C.wgmmas(); ++i) step(stage, i, stage, i + 1, false);
        if (!blocks.next()) {
            const auto factors = consumer.factors(scales, stage, kLast);
            finish_block<0>(block);
            if (stage < C.stages) promote<C>(acc.sum[kLast], block, factors);  // as in `step`
            if constexpr (!Tiles::ragged()) return finish_tile();
            consumer.release(stage);
            finish_tile();
            TileReports<C>::await_stores();
            if (!blocks.skip_to_rows()) return;
            start_sequence();
            continue;
        }
        wait(consumer.smem.full(blocks.at.stage), blocks.at.parity);
        TransformOf<C>::apply(consumer.smem, blocks.at.stage);
        step(stage, kLast, blocks.at.stage, 0, true);
        epilogue.load_source(
            tile, requested,
            2);  // per block: all at once would delay A and B, one at a time comes late where K is short
        if (kPlan<C>.persistent && ends) {
            finish_tile();
            start_tile();
        }
    }
}

/// Two block products in flight: the next one is started before this one is promoted.
template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
__device__ void mainloop_pipelined(const Consumer<C>& consumer, KBlockIterator<C, Tiles>& blocks, Epilogue&& epilogue) {
    struct Flight {
        Block<C> block;
        Scales scales;
    };
    const auto start = [&](Flight& f) {
        Operands operands = consumer.operands(blocks.at.stage, 0);
        pin<C>(operands);
        wait(consumer.smem.full(blocks.at.stage), blocks.at.parity);
        TransformOf<C>::apply(consumer.smem, blocks.at.stage);
        f.scales = consumer.scales(blocks.at.stage, 0);
        start_block(f.block, operands);
    };
    Flight even, odd;
    Accumulator<C> acc;
    Tile tile;
    uint32_t requested = 0;  // panels of the source tile whose loads have been issued
    const auto start_tile = [&] {
        acc.clear();
        tile = blocks.tile;
        requested = 0;
    };
    start(even);
    start_tile();
    const auto step = [&](Flight& now, Flight& later) {
        const uint32_t stage = blocks.at.stage;
        const bool ends = blocks.last_of_tile();
        const auto promote_finished = [&] {
            consumer.release(stage);
            promote<C>(acc.sum[0], now.block, BlockFactors(now.scales));
        };
        if (!blocks.next()) {
            finish_block<0>(now.block);
            promote_finished();
            if (!Tiles::ragged()) return false;
            epilogue.load_source(tile, requested, d_panels(C));
            epilogue(acc, tile);
            TileReports<C>::await_stores();
            if (!blocks.skip_to_rows()) return false;
            start(later);
            start_tile();
            return true;
        }
        start(later);
        finish_block<1>(now.block);
        promote_finished();
        epilogue.load_source(tile, requested, 2);
        if (kPlan<C>.persistent && ends) {
            epilogue.load_source(tile, requested, d_panels(C));
            epilogue(acc, tile);
            start_tile();
        }
        return true;
    };
#pragma unroll 1
    while (step(even, odd) && step(odd, even)) {}
    if (Tiles::ragged()) return;
    epilogue.load_source(tile, requested, d_panels(C));
    epilogue(acc, tile);
}

/// All tiles of this CTA, for this warpgroup's rows of them; the epilogue gets the sums of each. Consecutive tiles of
/// which the warpgroup has rows are one sequence of blocks; the stages of other tiles are only released.
template <GemmConfig C, TileSource<C> Tiles, TileEpilogue<C> Epilogue>
__device__ void multiply_tiles(const Shared<C>& smem, const Tiles& tiles, Epilogue&& epilogue) {
    Consumer<C> consumer(smem);
    ScaleProductOf<C>::prepare(smem, consumer.warpgroup);
    KBlockIterator<C, Tiles> blocks(consumer, tiles);
    if (!blocks.next_tile()) return;
    if (Tiles::ragged() && !blocks.skip_to_rows()) return;
    if constexpr (kPlan<C>.promotion == Promotion::None) mainloop_accumulating<C>(consumer, blocks, epilogue);
    else if constexpr (kPlan<C>.blocks_in_flight == 2) mainloop_pipelined<C>(consumer, blocks, epilogue);
    else mainloop_single<C>(consumer, blocks, epilogue);
}

}  // namespace finegemm::device
