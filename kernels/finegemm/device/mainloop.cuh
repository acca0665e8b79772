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
    uint32_t warpgroup, first_row, fragment_row;

    __device__ explicit MathRole(const Shared<C>& shared)
        : smem(shared),
          warpgroup(ptx::broadcast(threadIdx.x / 128)),
          first_row(warpgroup * C.rows_per_warpgroup()),
          fragment_row(first_row + wgmma_accumulator(threadIdx.x % 128, 0).row) {}

    /// Of 64 rows of A, the i-th of this warpgroup.
    __device__ Operands operands(uint32_t stage, uint32_t i) const {
        return {.a = wgmma_descriptor_low(smem.a(stage).bits + (first_row + i * 64) * GemmConfig::kTileK),
                .b = wgmma_descriptor_low(smem.b(stage).bits)};
    }
    __device__ Scales scales(uint32_t stage, uint32_t i) const {
        const SmemAddr rows = smem.sfa(stage) + (fragment_row + i * 64) * 4;
        return {.a_upper = ptx::load_shared(rows),
                .a_lower = ptx::load_shared(rows + 8 * 4),
                .b_first = ptx::load_shared(smem.sfb(stage)),
                .b_second = C.two_b_scales() ? ptx::load_shared(smem.sfb(stage) + 4) : 0.0f};
    }
};

/// The k-blocks of all tiles of a CTA in their order, so that the first block of a tile can be started before the tile
/// before it is stored.
template <GemmConfig C>
struct BlockWalk {
    Walk walk;
    TileCoord tile{};    // of the block
    uint32_t left = 0;   // blocks of the tile, this one included
    RingCursor<C.stages> at = RingCursor<C.stages>::consumer();
    // Where the next block will be: the way from a stage to an address is long, and so it is begun a block earlier.
    RingCursor<C.stages> ahead = RingCursor<C.stages>::consumer();

    __device__ explicit BlockWalk(const Walk& tiles) : walk(tiles) { ++ahead; }

    /// To the first block of the next tile; false when there is none.
    __device__ bool next_tile() {
        left = walk.k.size();
        return walk.take<C>(tile);
    }
    __device__ bool last_of_tile() const { return left == 1; }
    __device__ bool next() {
        at = ahead;
        ++ahead;
        if (left == 1) return persistent(C) && next_tile();
        --left;
        return true;
    }
};

/// Columns of a tile in its first scale block of B.
template <GemmConfig C>
__device__ inline uint32_t first_cols(TileCoord tile) {
    return C.two_b_scales() ? kScaleBlock - tile.n * C.tile_n % kScaleBlock : C.tile_n;
}

/// One block at a time: while this warpgroup promotes, the tensor cores work for another one. Nothing makes the two
/// alternate but that the tensor cores finish one warpgroup's block before the other's; explicit turns cost 8% of the
/// time. What comes between a block and the start of the next one is all that counts: the rest is done before.
template <GemmConfig C, typename Store>
__device__ void multiply_one_by_one(const MathRole<C>& role, const Walk& tiles, Store&& store) {
    BlockWalk<C> walk(tiles);
    if (!walk.next_tile()) return;
    float block[C.tile_n / 2];
    wait(role.smem.full(walk.at.stage), walk.at.parity);
    start_block(block, role.operands(walk.at.stage, 0));
    Scales scales = role.scales(walk.at.stage, 0);
    Accumulator<C> acc;
    acc.clear();
    TileCoord tile = walk.tile;
    uint32_t cols = first_cols<C>(tile);
#pragma unroll 1
    for (;;) {
        const uint32_t stage = walk.at.stage;
        const bool ends = walk.last_of_tile();
        bool more = true;
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
            const bool last = i + 1 == C.wgmmas_m();
            const Factors factors(scales);
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
            if (last) release(role.smem, stage);
            // Always so. But ptxas moves no instruction across the branch: it would else mix the promotion with what
            // starts the next block, and the tensor cores would wait (256x128 tiles: 13% of the time).
            if (stage < C.stages) promote<C>(acc.sum[i], block, factors, cols);
            if (last && !more) return store(acc, tile);
            start_block(block, operands);
        }
        if (persistent(C) && ends) {
            store(acc, tile);
            acc.clear();
            tile = walk.tile;
            cols = first_cols<C>(tile);
        }
    }
}

/// Two blocks in flight: the next one is started before this one is promoted.
template <GemmConfig C, typename Store>
__device__ void multiply_overlapped(const MathRole<C>& role, const Walk& tiles, Store&& store) {
    struct Flight {
        float block[C.tile_n / 2];
        Scales scales;
    };
    BlockWalk<C> walk(tiles);
    if (!walk.next_tile()) return;
    const auto start = [&](Flight& f) {
        wait(role.smem.full(walk.at.stage), walk.at.parity);
        f.scales = role.scales(walk.at.stage, 0);
        start_block(f.block, role.operands(walk.at.stage, 0));
    };
    Flight even, odd;
    start(even);
    Accumulator<C> acc;
    acc.clear();
    TileCoord tile = walk.tile;
    uint32_t cols = first_cols<C>(tile);
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
            return false;
        }
        start(later);
        finish_block<1>(now.block);
        promote_finished();
        if (persistent(C) && ends) {
            store(acc, tile);
            acc.clear();
            tile = walk.tile;
            cols = first_cols<C>(tile);
        }
        return true;
    };
#pragma unroll 1
    while (step(even, odd) && step(odd, even)) {}
    store(acc, tile);
}

/// All tiles of this CTA, for this warpgroup's rows of them; `store` gets the sums of each.
template <GemmConfig C, typename Store>
__device__ void multiply_tiles(const Shared<C>& smem, const Walk& tiles, Store&& store) {
    const MathRole<C> role(smem);
    if constexpr (blocks_in_flight(C) == 2) multiply_overlapped<C>(role, tiles, store);
    else multiply_one_by_one<C>(role, tiles, store);
}

}  // namespace finegemm::device
