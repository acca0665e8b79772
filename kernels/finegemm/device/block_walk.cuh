// What a math warpgroup knows of its place in a CTA, and the k-blocks that it comes to, tile after tile. Layer device.
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/schedule.h>
#include <finegemm/core/teams.h>
#include <finegemm/device/barriers.cuh>
#include <finegemm/device/promote.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/shared.cuh>

namespace finegemm::device {

/// What a math warpgroup needs while it walks over K.
template <GemmConfig C>
struct MathRole {
    const Shared<C>& smem;
    uint32_t warpgroup, first_row;
    uint32_t lane;
    SmemAddr row_scales;  // of this thread's upper row, in stage 0
    SmemAddr b_scales;    // of the tile's 128x128 blocks of B, in stage 0
    uint32_t shift = 0;   // in floats, from the first one of the stage (ScaleCopyPlan)

    __device__ explicit MathRole(const Shared<C>& shared)
        : smem(shared),
          warpgroup(ptx::broadcast(threadIdx.x / 128)),
          first_row(first_row_of(C, warpgroup)),
          lane(threadIdx.x % kWarpSize),
          row_scales(shared.sfa(0) + (first_row + wgmma_accumulator(threadIdx.x % 128, 0).row) * 4),
          b_scales(shared.sfb(0)) {
        // Sent to themselves: the compiler would else compute them again before each block, to save registers. Three
        // warpgroups have none to spare, nor have promotions by rows of B.
        if constexpr (C.math_warpgroups < 3 && !C.row_b_scales()) {
            lane = ptx::value_of(lane, lane);
            row_scales.bits = ptx::value_of(row_scales.bits, lane);
        }
        // And what lies at an address that all lanes share goes into a uniform register, after the wait for a block.
        if constexpr (C.several_runs()) b_scales.bits = ptx::value_of(b_scales.bits, lane);
    }

    /// What A's scales in parts have beside them.
    __device__ void make_zeros() const {
        const uint32_t row = threadIdx.x % 128;
        if (row < kZeroRows) ptx::store_shared_words_x4(smem.zeros(warpgroup) + row * kFactorRowBytes, {0, 0, 0, 0});
        ptx::fence_proxy_async_shared();
        warpgroup_barrier(warpgroup);
    }

    /// Tells all producers that write into this stage, in a cluster those of all CTAs, that this warp has read it.
    __device__ void release(uint32_t stage) const {
        constexpr uint32_t kServed = producers_served(C);
        __syncwarp();  // the whole warp has read its scales
        if constexpr (kServed > 1) {
#pragma unroll
            for (uint32_t i = 0; i < kServed * kLanesArrive; i += kWarpSize)
                if (i + lane < kServed * kLanesArrive)
                    ptx::mbarrier_arrive_cluster(ptx::map_to_rank(smem.empty(stage), (i + lane) / kLanesArrive));
        } else {
            if (lane < kLanesArrive) ptx::mbarrier_arrive(smem.empty(stage));
        }
    }

    /// To a tile whose scales of rows are so many floats behind the first one of a stage.
    __device__ void shift_scales(uint32_t floats) {
        row_scales = row_scales + (floats - shift) * 4;
        shift = floats;
    }

    /// Of 64 rows of A, the i-th of this warpgroup.
    __device__ Operands operands(uint32_t stage, uint32_t i) const {
        const uint32_t row = first_row + i * rows_apart(C);
        Operands at{.a = wgmma_descriptor_low(smem.a(stage).bits + row * GemmConfig::kTileK),
                    .b = wgmma_descriptor_low(smem.b(stage).bits),
                    .sfa = 0,
                    .sfb = 0};
        if constexpr (factors_by_wgmma(C)) {
            const uint32_t parts = smem.sfa(stage).bits + row * kFactorRowBytes;
            at.sfa = wgmma_short_rows_low(parts, smem.zeros(warpgroup).bits - parts);
            at.sfb = wgmma_short_rows_low(smem.sfb(stage).bits, 0);
        }
        return at;
    }
    /// The scale of this thread's upper row, of the i-th 64.
    __device__ SmemAddr rows_of(uint32_t stage, uint32_t i) const {
        return row_scales + (stage * smem.kPlan.sfa_stage + i * rows_apart(C) * 4);
    }
    __device__ Scales scales(uint32_t stage, uint32_t i) const {
        if constexpr (C.row_b_scales()) return {};
        const SmemAddr rows = rows_of(stage, i), b = b_scales + stage * smem.kPlan.sfb_stage;
        Scales s{.a_upper = ptx::load_shared(rows), .a_lower = ptx::load_shared(rows + 8 * 4), .b = {}};
#pragma unroll
        for (uint32_t run = 0; run < runs(C); ++run) s.b[run] = ptx::load_shared(b + run * 4);
        return s;
    }
    /// Of 64 rows, where each row of B has a scale.
    __device__ RowFactors row_factors(uint32_t stage, uint32_t i) const {
        const SmemAddr rows = rows_of(stage, i);
        return {.upper = ptx::load_shared(rows),
                .lower = ptx::load_shared(rows + 8 * 4),
                .b = smem.sfb(stage) + wgmma_accumulator(threadIdx.x % 128, 0).col * 4};
    }
    /// Of 64 rows and all columns of a block in `stage`, whose scales these are.
    __device__ auto factors(const Scales& s, uint32_t stage, uint32_t i) const {
        if constexpr (factors_by_wgmma(C)) {
            return OwnFactors();
        } else if constexpr (C.row_b_scales()) {
            RowFactors f = row_factors(stage, i);
            ptx::pin(f.b.bits);  // an address that is ready when the block is
            return f;
        } else {
            Factors f(s);
            if constexpr (C.several_runs()) f.pin<runs(C)>();  // many products, ready when the block is
            return f;
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
    uint32_t shift = 0;  // of the scales of the tile that was taken last

    __device__ bool take(Tile& out, RingCursor<C.stages> at) {
        wait(smem.full(at.stage), at.parity);
        const ptx::Words4 tile = ptx::load_shared_words_x4(smem.tile(at.stage));
        out = unpacked({.row = tile.w[0], .col = tile.w[1], .rows = tile.w[2], .group = tile.w[3]});
        shift = tile.w[3];
        return out.rows > 0;
    }
};

/// ... and those of groups of k-blocks with their number, too (load_tiles).
template <GemmConfig C>
struct AnnouncedKTiles {
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

/// The k-blocks of all tiles of a CTA in their order, or those of this warpgroup's team, so that the first block of a
/// tile can be started before the tile before it is stored.
template <GemmConfig C, typename Tiles>
struct BlockWalk {
    MathRole<C>& role;
    Tiles tiles;
    Tile tile{};        // of the block; without rows: there is none
    uint32_t left = 0;  // blocks of the tile, this one included
    RingCursor<C.stages> at = RingCursor<C.stages>::consumer();
    // Where the next block will be: the way from a stage to an address is long, and so it is begun a block earlier.
    RingCursor<C.stages> ahead;

    __device__ BlockWalk(MathRole<C>& math, const Tiles& of) : role(math), tiles(of) {
        if constexpr (C.teams() > 1) at += team_of(C, role.warpgroup);
        ahead = at;
        ahead += C.teams();
    }

    __device__ bool next_tile() {
        const bool exists = tiles.take(tile, at);
        left = blocks_of_team(tiles.k_blocks, C.teams(), team_of(C, role.warpgroup));
        if constexpr (C.row_groups()) role.shift_scales(tiles.shift);
        return exists;
    }
    /// Whether this warpgroup has rows of the tile. A dense tile that lacks some is the last of a column, and rare.
    __device__ bool has_rows() const { return !C.row_groups() || tile.rows > role.first_row; }
    __device__ bool last_of_tile() const { return left == 1; }
    __device__ void advance() {
        at = ahead;
        ahead += C.teams();
    }
    /// To the next block of a run of tiles of which this warpgroup has rows; false at its end.
    __device__ bool next() {
        advance();
        if constexpr (C.row_groups()) {  // so that the blocks in between do not wait for what the last one needs
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
                role.release(at.stage);
            }
            next_tile();
        }
        return tile.rows > 0;
    }
};

}  // namespace finegemm::device
