// The main loop of a math warpgroup: one k-block at a time, tensor cores inside a block, FP32 between blocks.
// Layer device. Two-level accumulation: the tensor core's FP8 accumulator keeps about 14 bits (docs/numerics.md).
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/registers.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/schedule.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/barriers.cuh>
#include <finegemm/device/ptx/wgmma.cuh>
#include <finegemm/device/shared.cuh>

namespace finegemm::device {

/// The FP32 sums of one warpgroup's part of the tile, in wgmma's fragment layout, 64 rows after 64 rows.
template <GemmConfig C>
struct Accumulator {
    static constexpr uint32_t kRegisters = C.tile_n / 2;
    float sum[C.wgmmas_m()][kRegisters];

    __device__ void clear() {
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
#pragma unroll
            for (uint32_t r = 0; r < kRegisters; ++r) sum[i][r] = 0;
    }
};

/// What tells wgmma where A and B of a block lie: the halves of the descriptors that vary.
struct Operands {
    uint32_t a, b;
};

/// Starts block[64 x tile_n] = A[64 x 128] * B[tile_n x 128]^T: four wgmma of 32.
template <uint32_t Registers>
__device__ inline void start_block(float (&block)[Registers], Operands at) {
    ptx::wgmma_fence();
    ptx::wgmma_k128_e4m3(block, wgmma_descriptor_with(at.a), wgmma_descriptor_with(at.b));
    ptx::wgmma_commit_group();
}

/// Waits until all but the youngest `Pending` groups have finished; `block` may be read after it.
template <uint32_t Pending, uint32_t Registers>
__device__ inline void finish_block(float (&block)[Registers]) {
    ptx::wgmma_wait_group<Pending>();
#pragma unroll
    for (uint32_t r = 0; r < Registers; ++r) ptx::pin(block[r]);
}

/// Scales that a thread needs for one k-block: two rows of A, and the one or two blocks of B that the tile touches.
struct Scales {
    float a_upper, a_lower;  // rows `row` and `row + 8` of the fragment
    float b_first, b_second;
};

/// Their products, which the sums of a block are multiplied with.
struct Factors {
    float upper_first, lower_first, upper_second, lower_second;

    __device__ explicit Factors(const Scales& s)
        : upper_first(s.a_upper * s.b_first),
          lower_first(s.a_lower * s.b_first),
          upper_second(s.a_upper * s.b_second),
          lower_second(s.a_lower * s.b_second) {}
};

/// sum += block * factors. `cols_of_first`: columns of the tile in its first scale block of B.
template <GemmConfig C>
__device__ inline void promote(float (&sum)[C.tile_n / 2], const float (&block)[C.tile_n / 2], const Factors& f,
                               uint32_t cols_of_first) {
    constexpr uint32_t kCols = scale_step(C);
#pragma unroll
    for (uint32_t col = 0; col < C.tile_n; col += kCols) {
        const bool first = !C.two_b_scales() || col == 0 || (col < kScaleBlock && col < cols_of_first);
        const float upper = first ? f.upper_first : f.upper_second;
        const float lower = first ? f.lower_first : f.lower_second;
#pragma unroll
        for (uint32_t r = col / 2; r < (col + kCols) / 2; r += 4) {
            sum[r] = ptx::fma(block[r], upper, sum[r]);
            sum[r + 1] = ptx::fma(block[r + 1], upper, sum[r + 1]);
            sum[r + 2] = ptx::fma(block[r + 2], lower, sum[r + 2]);
            sum[r + 3] = ptx::fma(block[r + 3], lower, sum[r + 3]);
        }
    }
}

/// The same where each column has a scale of its own: what a thread needs of its rows, and where its columns' are.
struct RowFactors {
    float upper, lower;
    SmemAddr b;
};

/// The scales of B are read as the promotion goes: all of them would take as many registers as half a block.
template <uint32_t Registers>
__device__ inline void promote_rows(float* sum, const float (&block)[Registers], const RowFactors& f) {
#pragma unroll
    for (uint32_t r = 0; r < Registers; r += 4) {
        const ptx::Float2 b = ptx::load_shared_x2(f.b + r / 4 * 8 * 4);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            sum[r + i] = ptx::fma(block[r + i], f.upper * b.part[i], sum[r + i]);
            sum[r + 2 + i] = ptx::fma(block[r + 2 + i], f.lower * b.part[i], sum[r + 2 + i]);
        }
    }
}

template <GemmConfig C>
__device__ inline void promote(float (&sum)[C.tile_n / 2], const float (&block)[C.tile_n / 2], const RowFactors& f,
                               uint32_t) {
    promote_rows(sum, block, f);
}

/// Tells all producers that write into this stage, in a cluster those of all CTAs, that this warp has read it.
template <GemmConfig C>
__device__ inline void release(const Shared<C>& smem, uint32_t stage) {
    const uint32_t lane = threadIdx.x % kWarpSize;
    __syncwarp();  // the whole warp has read its scales
    if constexpr (producers_served(C) > 1) {
        if (lane < producers_served(C)) ptx::mbarrier_arrive_cluster(ptx::map_to_rank(smem.empty(stage), lane));
    } else {
        if (lane == 0) ptx::mbarrier_arrive(smem.empty(stage));
    }
}

/// What a math warpgroup needs while it walks over K.
template <GemmConfig C>
struct MathRole {
    const Shared<C>& smem;
    uint32_t warpgroup, first_row;
    SmemAddr row_scales;  // of this thread's upper row, in stage 0

    __device__ explicit MathRole(const Shared<C>& shared)
        : smem(shared),
          warpgroup(ptx::broadcast(threadIdx.x / 128)),
          first_row(warpgroup * C.rows_per_warpgroup()),
          row_scales(shared.sfa(0) + (first_row + wgmma_accumulator(threadIdx.x % 128, 0).row) * 4) {
        // Sent to itself: the compiler would else compute it again before each block, to save a register. Three
        // warpgroups have none to spare, nor have promotions by rows of B.
        if constexpr (C.math_warpgroups < 3 && !C.row_b_scales()) row_scales.bits = ptx::value_of(row_scales.bits, threadIdx.x % kWarpSize);
    }

    /// Of 64 rows of A, the i-th of this warpgroup.
    __device__ Operands operands(uint32_t stage, uint32_t i) const {
        return {.a = wgmma_descriptor_low(smem.a(stage).bits + (first_row + i * 64) * GemmConfig::kTileK),
                .b = wgmma_descriptor_low(smem.b(stage).bits)};
    }
    /// The scale of this thread's upper row, of the i-th 64.
    __device__ SmemAddr rows_of(uint32_t stage, uint32_t i) const {
        return row_scales + (stage * smem.kPlan.sfa_stage + i * 64 * 4);
    }
    __device__ Scales scales(uint32_t stage, uint32_t i) const {
        if constexpr (C.row_b_scales()) return {};
        const SmemAddr rows = rows_of(stage, i);
        return {.a_upper = ptx::load_shared(rows),
                .a_lower = ptx::load_shared(rows + 8 * 4),
                .b_first = ptx::load_shared(smem.sfb(stage)),
                .b_second = C.two_b_scales() ? ptx::load_shared(smem.sfb(stage) + 4) : 0.0f};
    }
    /// Of 64 rows and the columns from `col` on, where each row of B has a scale.
    __device__ RowFactors row_factors(uint32_t stage, uint32_t i, uint32_t col) const {
        const SmemAddr rows = rows_of(stage, i);
        return {.upper = ptx::load_shared(rows),
                .lower = ptx::load_shared(rows + 8 * 4),
                .b = smem.sfb(stage) + (wgmma_accumulator(threadIdx.x % 128, 0).col + col) * 4};
    }
    /// Of 64 rows and all columns of a block in `stage`, whose scales these are.
    __device__ auto factors(const Scales& s, uint32_t stage, uint32_t i) const {
        if constexpr (C.row_b_scales()) {
            RowFactors f = row_factors(stage, i, 0);
            ptx::pin(f.b.bits);  // an address that is ready when the block is
            return f;
        } else {
            return Factors(s);
        }
    }
};

/// Where the math warps learn which tiles there are: dense ones count them out themselves ...
template <GemmConfig C>
struct CountedTiles {
    Walk walk;
    uint32_t k_blocks;  // of every tile

    __device__ explicit CountedTiles(const Walk& tiles) : walk(tiles), k_blocks(tiles.k.size()) {}
    __device__ bool take(Tile& out, RingCursor<C.stages>) { return walk.take<C>(out); }
};

/// ... those of groups come with their first block (load_grouped_tiles).
template <GemmConfig C>
struct AnnouncedTiles {
    const Shared<C>& smem;
    uint32_t k_blocks;

    __device__ bool take(Tile& out, RingCursor<C.stages> at) const {
        wait(smem.full(at.stage), at.parity);
        const ptx::Words4 tile = ptx::load_shared_words_x4(smem.tile(at.stage));
        out = {.row = tile.w[0], .col = tile.w[1], .rows = tile.w[2], .group = tile.w[3]};
        return out.rows > 0;
    }
};

/// The k-blocks of all tiles of a CTA in their order, so that the first block of a tile can be started before the tile
/// before it is stored.
template <GemmConfig C, typename Tiles>
struct BlockWalk {
    const MathRole<C>& role;
    Tiles tiles;
    Tile tile{};         // of the block; without rows: there is none
    uint32_t left = 0;   // blocks of the tile, this one included
    RingCursor<C.stages> at = RingCursor<C.stages>::consumer();
    // Where the next block will be: the way from a stage to an address is long, and so it is begun a block earlier.
    RingCursor<C.stages> ahead = RingCursor<C.stages>::consumer();

    __device__ BlockWalk(const MathRole<C>& math, const Tiles& of) : role(math), tiles(of) {
        ++ahead;
    }

    __device__ bool next_tile() {
        left = tiles.k_blocks;
        return tiles.take(tile, at);
    }
    /// Whether this warpgroup has rows of the tile. A dense tile that lacks some is the last of a column, and rare.
    __device__ bool has_rows() const { return !C.grouped() || tile.rows > role.first_row; }
    __device__ bool last_of_tile() const { return left == 1; }
    __device__ void advance() {
        at = ahead;
        ++ahead;
    }
    /// To the next block of a run of tiles of which this warpgroup has rows; false at its end.
    __device__ bool next() {
        advance();
        if constexpr (C.grouped()) {  // so that the blocks in between do not wait for what the last one needs
            if (left == 1) {
                if (!next_tile() || !has_rows()) return false;
            } else {
                --left;
            }
            return true;
        }
        if (left == 1) return persistent(C) && next_tile();
        --left;
        return true;
    }
    /// To the next tile of which this warpgroup has rows, this one or a later one.
    __device__ bool next_run() {
        while (tile.rows > 0 && !has_rows()) {
            for (; left > 0; --left, advance()) {
                wait(role.smem.full(at.stage), at.parity);
                release(role.smem, at.stage);
            }
            next_tile();
        }
        return tile.rows > 0;
    }
};

/// Columns of a tile in its first scale block of B.
template <GemmConfig C>
__device__ inline uint32_t first_cols(const Tile& tile) {
    return C.two_b_scales() ? kScaleBlock - tile.col % kScaleBlock : C.tile_n;
}

/// One block at a time: while this warpgroup promotes, the tensor cores work for another one. Nothing makes the two
/// alternate but that the tensor cores finish one warpgroup's block before the other's; explicit turns cost 8% of the
/// time. What comes between a block and the start of the next one is all that counts: the rest is done before.
template <GemmConfig C, typename Tiles, typename Store>
__device__ void multiply_one_by_one(const MathRole<C>& role, BlockWalk<C, Tiles>& walk, Store&& store) {
    float block[C.tile_n / 2];
    Scales scales;
    const auto start_run = [&] {
        wait(role.smem.full(walk.at.stage), walk.at.parity);
        start_block(block, role.operands(walk.at.stage, 0));
        scales = role.scales(walk.at.stage, 0);
    };
    Accumulator<C> acc;
    Tile tile;
    uint32_t cols = 0;
    const auto start_tile = [&] {
        acc.clear();
        tile = walk.tile;
        cols = first_cols<C>(tile);
    };
    start_run();
    start_tile();
#pragma unroll 1
    for (;;) {
        const uint32_t stage = walk.at.stage;
        const bool ends = walk.last_of_tile();
        bool more = true;
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
            const bool last = i + 1 == C.wgmmas_m();
            const auto factors = role.factors(scales, stage, i);
            if (last) more = walk.next();
            const uint32_t next_stage = last ? walk.at.stage : stage, next_i = last ? 0 : i + 1;
            if (more) {
                if (last) wait(role.smem.full(next_stage), walk.at.parity);
                scales = role.scales(next_stage, next_i);
            }
            Operands operands = role.operands(next_stage, next_i);
            ptx::pin(operands.a);
            ptx::pin(operands.b);
            finish_block<0>(block);
            if (last && !C.row_b_scales()) release(role.smem, stage);
            // Always so. But ptxas moves no instruction across the branch: it would else mix the promotion with what
            // starts the next block, and the tensor cores would wait (256x128 tiles: 13% of the time). And what the
            // branch asks for is there before it; three warpgroups have no registers for that (2%).
            const bool always = C.math_warpgroups < 3 && !C.row_b_scales() ? operands.a != operands.b : stage < C.stages;
            if (always) promote<C>(acc.sum[i], block, factors, cols);
            if (last && !more) {
                if constexpr (!C.grouped()) return store(acc, tile);
                store(acc, tile);
                if (!walk.next_run()) return;
                start_run();
                start_tile();
            } else {
                start_block(block, operands);
                if (last && C.row_b_scales()) release(role.smem, stage);  // the promotion has read it, too
            }
        }
        if (persistent(C) && ends && (!C.grouped() || more)) {
            store(acc, tile);
            start_tile();
        }
    }
}

/// Two blocks in flight: the next one is started before this one is promoted.
template <GemmConfig C, typename Tiles, typename Store>
__device__ void multiply_overlapped(const MathRole<C>& role, BlockWalk<C, Tiles>& walk, Store&& store) {
    struct Flight {
        float block[C.tile_n / 2];
        Scales scales;
    };
    const auto start = [&](Flight& f) {
        Operands operands = role.operands(walk.at.stage, 0);
        ptx::pin(operands.a);
        ptx::pin(operands.b);
        wait(role.smem.full(walk.at.stage), walk.at.parity);
        f.scales = role.scales(walk.at.stage, 0);
        start_block(f.block, operands);
    };
    Flight even, odd;
    Accumulator<C> acc;
    Tile tile;
    uint32_t cols = 0;
    const auto start_tile = [&] {
        acc.clear();
        tile = walk.tile;
        cols = first_cols<C>(tile);
    };
    start(even);
    start_tile();
    const auto step = [&](Flight& now, Flight& later) {
        const uint32_t stage = walk.at.stage;
        const bool ends = walk.last_of_tile();
        const auto promote_finished = [&] {
            release(role.smem, stage);
            promote<C>(acc.sum[0], now.block, Factors(now.scales), cols);
        };
        if (!walk.next()) {
            finish_block<0>(now.block);
            promote_finished();
            if (!C.grouped()) return false;
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
    if (!C.grouped()) store(acc, tile);
}

/// Where each row of B has a scale: two block products of `block_cols` columns are in flight; a k-block has `kParts`.
template <GemmConfig C, typename Tiles, typename Store>
__device__ void multiply_parts(const MathRole<C>& role, BlockWalk<C, Tiles>& walk, Store&& store) {
    constexpr uint32_t kCols = block_cols(C), kParts = C.tile_n / kCols;
    float even[kCols / 2], odd[kCols / 2];
    const auto start = [&](float (&part)[kCols / 2], uint32_t stage, uint32_t i) {
        Operands at = role.operands(stage, 0);
        at.b += i * kCols * GemmConfig::kTileK / 16;  // descriptors count 16 bytes
        start_block(part, at);
    };
    wait(role.smem.full(walk.at.stage), walk.at.parity);
    start(even, walk.at.stage, 0);
    Accumulator<C> acc;
    acc.clear();
    Tile tile = walk.tile;
    // All parts of a block, the first one in `first`; false after the last block of all.
    const auto step = [&](float (&first)[kCols / 2], float (&second)[kCols / 2]) {
        const uint32_t stage = walk.at.stage;
        const bool ends = walk.last_of_tile();
#pragma unroll
        for (uint32_t i = 0; i < kParts; ++i) {
            auto& now = i % 2 == 0 ? first : second;
            auto& later = i % 2 == 0 ? second : first;
            const RowFactors factors = role.row_factors(stage, 0, i * kCols);
            float* const sum = &acc.sum[0][i * kCols / 2];
            if (i + 1 < kParts) {
                // Never so. But without a way out of the loop here, ptxas lets each wgmma wait for the one before it.
                if (stage >= C.stages) ptx::trap();
                start(later, stage, i + 1);
            } else if (walk.next()) {
                wait(role.smem.full(walk.at.stage), walk.at.parity);
                start(later, walk.at.stage, 0);
            } else {
                finish_block<0>(now);
                promote_rows(sum, now, factors);
                return false;
            }
            finish_block<1>(now);
            promote_rows(sum, now, factors);
        }
        release(role.smem, stage);  // the promotions have read it, too
        if (persistent(C) && ends) {
            store(acc, tile);
            acc.clear();
            tile = walk.tile;
        }
        return true;
    };
    if constexpr (kParts % 2 == 0) {
#pragma unroll 1
        while (step(even, odd)) {}
    } else {
#pragma unroll 1
        while (step(even, odd) && step(odd, even)) {}
    }
    store(acc, tile);
}

/// All tiles of this CTA, for this warpgroup's rows of them; `store` gets the sums of each. A run of tiles of which it
/// has rows is one sequence of blocks; of other tiles it only lets the stages go.
template <GemmConfig C, typename Tiles, typename Store>
__device__ void multiply_tiles(const Shared<C>& smem, const Tiles& tiles, Store&& store) {
    static_assert(!C.grouped() || !C.row_b_scales());
    const MathRole<C> role(smem);
    BlockWalk<C, Tiles> walk(role, tiles);
    if (!walk.next_tile()) return;
    if (C.grouped() && !walk.next_run()) return;
    if constexpr (C.row_b_scales() && C.wgmmas_m() == 1) multiply_parts<C>(role, walk, store);
    else if constexpr (blocks_in_flight(C) == 2) multiply_overlapped<C>(role, walk, store);
    else multiply_one_by_one<C>(role, walk, store);
}

}  // namespace finegemm::device
