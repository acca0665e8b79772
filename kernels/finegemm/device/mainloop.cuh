// The main loop of a math warpgroup: one k-block at a time, tensor cores inside a block, FP32 between blocks.
// Layer device.
#pragma once

#include <finegemm/core/registers.h>
#include <finegemm/device/block_walk.cuh>

namespace finegemm::device {

/// One block at a time: while this warpgroup promotes, the tensor cores work for another one. Nothing makes the two
/// alternate but that the tensor cores finish one warpgroup's block before the other's; explicit turns cost 8% of the
/// time. What comes between a block and the start of the next one is all that counts: the rest is done before.
template <GemmConfig C, typename Tiles, typename Store>
__device__ void multiply_one_by_one(const MathRole<C>& role, BlockWalk<C, Tiles>& walk, Store&& store) {
    // Whether promotions read the stage, which is let go after them, then.
    constexpr bool kReadsStage = C.row_b_scales() && !factors_by_wgmma(C);
    constexpr uint32_t kLast = C.wgmmas_m() - 1;
    Block<C> block;
    Scales scales;
    Accumulator<C> acc;
    Tile tile;
    uint32_t brought = 0;  // boxes of D that are on their way, where what D has is brought
    const auto start_tile = [&] {
        acc.clear();
        tile = walk.tile;
        brought = 0;
    };
    // Whether the tile has no rows for the last WGMMA of this warpgroup.
    const auto lacks_rows = [&] {
        return C.row_groups() && kLast > 0 && tile.rows <= role.first_row + kLast * rows_apart(C);
    };
    const auto bring = [&](uint32_t count) {
        if constexpr (brings_d(C))
            for (const uint32_t end = min(brought + count, boxes_of_d(C)); brought < end; ++brought)
                store.bring(tile, brought);
    };
    const auto finish_tile = [&] {
        bring(boxes_of_d(C));
        if (lacks_rows()) acc.move_last_to_first();
        store(acc, tile);
    };
    const auto start_run = [&] {
        wait(role.smem.full(walk.at.stage), walk.at.parity);
        start_block(block, role.operands(walk.at.stage, 0));
        scales = role.scales(walk.at.stage, 0);
        start_tile();
    };
    // Promotes the i-th product of the block in `stage`, and starts the one after it, which is ready.
    const auto step = [&](uint32_t stage, uint32_t i, uint32_t next_stage, uint32_t next_i, bool last) {
        // Not earlier, though they could be: the promotion would begin sooner, and the other warpgroup's next start,
        // which gets no turn while a promotion issues, later (128x192 tiles: 12% of the time).
        const auto factors = role.factors(scales, stage, i);
        scales = role.scales(next_stage, next_i);
        Operands operands = role.operands(next_stage, next_i);
        pin<C>(operands);
        finish_block<0>(block);
        if (last && !kReadsStage) role.release(stage);
        // Always so. But ptxas moves no instruction across the branch: it would else mix the promotion with what
        // starts the next block, and the tensor cores would wait (256x128 tiles: 13% of the time). And what the
        // branch asks for is there before it; three warpgroups have no registers for that (2%).
        constexpr bool kReady = C.math_warpgroups < 3 && !kReadsStage;
        const bool always = kReady ? operands.a != operands.b : stage < C.stages;
        if (always) promote<C>(acc.sum[i], block, factors);
        start_block(block, operands);
        if (last && kReadsStage) role.release(stage);
    };
    start_run();
#pragma unroll 1
    for (;;) {
        const uint32_t stage = walk.at.stage;
        const bool ends = walk.last_of_tile();
        // Else the products of its first 64 rows go to the sums of the last ones: there is one code for both.
        if (!lacks_rows())
#pragma unroll
            for (uint32_t i = 0; i + 1 < C.wgmmas_m(); ++i) step(stage, i, stage, i + 1, false);
        if (!walk.next()) {
            const auto factors = role.factors(scales, stage, kLast);
            finish_block<0>(block);
            if (stage < C.stages) promote<C>(acc.sum[kLast], block, factors);  // as in `step`
            if constexpr (!C.row_groups()) return finish_tile();
            role.release(stage);
            finish_tile();
            if (!walk.next_run()) return;
            start_run();
            continue;
        }
        wait(role.smem.full(walk.at.stage), walk.at.parity);
        step(stage, kLast, walk.at.stage, 0, true);
        bring(2);  // with each block: all at once would keep A and B waiting, one by one come late where K is short
        if (persistent(C) && ends) {
            finish_tile();
            start_tile();
        }
    }
}

/// Two blocks in flight: the next one is started before this one is promoted.
template <GemmConfig C, typename Tiles, typename Store>
__device__ void multiply_overlapped(const MathRole<C>& role, BlockWalk<C, Tiles>& walk, Store&& store) {
    struct Flight {
        Block<C> block;
        Scales scales;
    };
    const auto start = [&](Flight& f) {
        Operands operands = role.operands(walk.at.stage, 0);
        pin<C>(operands);
        wait(role.smem.full(walk.at.stage), walk.at.parity);
        f.scales = role.scales(walk.at.stage, 0);
        start_block(f.block, operands);
    };
    Flight even, odd;
    Accumulator<C> acc;
    Tile tile;
    const auto start_tile = [&] {
        acc.clear();
        tile = walk.tile;
    };
    start(even);
    start_tile();
    const auto step = [&](Flight& now, Flight& later) {
        const uint32_t stage = walk.at.stage;
        const bool ends = walk.last_of_tile();
        const auto promote_finished = [&] {
            role.release(stage);
            promote<C>(acc.sum[0], now.block, Factors(now.scales));
        };
        if (!walk.next()) {
            finish_block<0>(now.block);
            promote_finished();
            if (!C.row_groups()) return false;
            store(acc, tile);
            if (!walk.next_run()) return false;
            start(later);
            start_tile();
            return true;
        }
        start(later);
        finish_block<1>(now.block);
        promote_finished();
        if (persistent(C) && ends) {
            store(acc, tile);
            start_tile();
        }
        return true;
    };
#pragma unroll 1
    while (step(even, odd) && step(odd, even)) {}
    if (!C.row_groups()) store(acc, tile);
}

/// All tiles of this CTA, for this warpgroup's rows of them; `store` gets the sums of each. A run of tiles of which it
/// has rows is one sequence of blocks; of other tiles it only lets the stages go.
template <GemmConfig C, typename Tiles, typename Store>
__device__ void multiply_tiles(const Shared<C>& smem, const Tiles& tiles, Store&& store) {
    static_assert(!C.row_groups() || !C.row_b_scales());
    MathRole<C> role(smem);
    if constexpr (factors_by_wgmma(C)) role.make_zeros();
    BlockWalk<C, Tiles> walk(role, tiles);
    if (!walk.next_tile()) return;
    if (C.row_groups() && !walk.next_run()) return;
    if constexpr (blocks_in_flight(C) == 2) multiply_overlapped<C>(role, walk, store);
    else multiply_one_by_one<C>(role, walk, store);
}

}  // namespace finegemm::device
