// Producers of tiles of A and B, by TMA. Layer device.
// The producers of scales (load_scales.cuh) fill the same stages and arrive at the same barriers.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/gemm/params.h>
#include <finegemm/gemm/schedule.h>
#include <finegemm/device/barriers.cuh>
#include <finegemm/device/grouped_m_scheduler.cuh>
#include <finegemm/device/load_scales.cuh>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/shared.cuh>

namespace finegemm::device {

/// First row of the part of an operand's tile that this CTA loads: with sharers each loads a part, for all of them.
__device__ inline uint32_t first_of_part(uint32_t rows, uint32_t sharers, uint32_t rank) {
    return sharers > 1 ? rank * (rows / sharers) : 0;
}

/// Publishes a tile to the math warps, in an empty stage. A tile without rows is the end.
template <GemmConfig C>
__device__ inline void publish(const Shared<C>& smem, uint32_t stage, const Tile& tile) {
    ptx::store_shared_words_x4(smem.tile(stage), {{tile.row, tile.col, tile.rows, tile.group}});
}

/// The rows of B of one segment of a tile: the map that loads them, and the rows of its box.
struct RowsOfB {
    const TensorMap* map;
    uint32_t first, count;  // no map: there are none
};
template <GemmConfig C>
__device__ inline RowsOfB rows_of_segment(const Params<C>& p, const Tile& tile, uint32_t segment) {
    const uint32_t first = segment_col(C, p.raster, tile.col, segment), rows = segment_cols(C, segment);
    if (segment > 0 && first >= p.n) return {nullptr, 0, 0};
    if (first + rows > p.n) return {&p.b.last, first, p.b_rows_of_last};
    if constexpr (n_segments(C) > 1)
        if (segment > 0) return {&p.b_segments[segment - 1], first, rows};
    return {&p.b.whole, first, rows};
}

/// The rows of B of all segments of a tile.
template <GemmConfig C>
struct SegmentsOfB {
    RowsOfB segment[n_segments(C)];

    __device__ static SegmentsOfB of(const Params<C>& p, const Tile& tile) {
        SegmentsOfB b;
#pragma unroll
        for (uint32_t i = 0; i < n_segments(C); ++i) b.segment[i] = rows_of_segment<C>(p, tile, i);
        return b;
    }
    __device__ uint32_t count() const {
        uint32_t sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < n_segments(C); ++i) sum += segment[i].count;
        return sum;
    }
};

/// Maps that a tile is loaded by, total rows of their boxes, and the k-block at which the maps begin.
template <GemmConfig C>
struct TileSource {
    const TensorMap* a;
    SegmentsOfB<C> b;
    uint32_t rows, first_k_block;
};
template <GemmConfig C>
__device__ inline TileSource<C> source_of(const Params<C>& p, const Tile& tile, uint32_t first_k_block) {
    if constexpr (C.k_groups())
        if (p.blocks)
            return {&p.a_blocks[tile.group],
                    {{{&p.b_blocks[tile.group], tile.col, C.tile_n}}},
                    C.tile_m + C.tile_n,
                    first_k_block};
    const bool a_last = tile.row + C.tile_m > p.m;
    const auto b = SegmentsOfB<C>::of(p, tile);
    return {a_last ? &p.a.last : &p.a.whole, b, (a_last ? p.a_rows_of_last : C.tile_m) + b.count(), 0};
}

/// The loads of one tile's k-blocks, by one thread. Of a shared operand this CTA loads its part of the rows and
/// multicasts it to the whole cluster.
template <GemmConfig C>
struct BlockLoads {
    static constexpr uint16_t kAllRanks = (1u << C.cluster) - 1;
    const Params<C>& p;
    const Shared<C>& smem;
    TileSource<C> from;
    uint32_t a_row, a_part, rank;

    __device__ BlockLoads(const Params<C>& params, const Shared<C>& shared, const Tile& tile, uint32_t cluster_rank,
                          uint32_t first_k_block)
        : p(params),
          smem(shared),
          from(source_of<C>(params, tile, first_k_block)),
          a_part(first_of_part(C.tile_m, C.a_sharers(), cluster_rank)),
          rank(cluster_rank) {
        a_row = tile.row + a_part;
    }

    __device__ uint32_t k_of(uint32_t kb) const { return (kb - from.first_k_block) * GemmConfig::kTileK; }

    /// Expects a k-block's bytes in an empty stage.
    __device__ void expect(uint32_t stage) const {
        ptx::mbarrier_arrive_expect_tx(smem.full(stage), from.rows * GemmConfig::kTileK);
    }
    __device__ void load_a(uint32_t stage, uint32_t kb) const {
        const SmemAddr to = smem.a(stage) + a_part * GemmConfig::kTileK, full = smem.full(stage);
        if constexpr (C.a_sharers() > 1)
            ptx::tma_load_multicast(to, from.a, full, k_of(kb), a_row, kAllRanks, p.a_policy);
        else ptx::tma_load(to, from.a, full, k_of(kb), a_row, p.a_policy);
    }
    __device__ void load_b(uint32_t stage, uint32_t kb) const {
#pragma unroll
        for (uint32_t i = 0; i < n_segments(C); ++i)
            if (i == 0 || from.b.segment[i].map) load_segment(stage, kb, i);
    }
    /// Loads a k-block of A and B into an empty stage.
    __device__ void load(uint32_t stage, uint32_t kb) const {
        expect(stage);
        load_a(stage, kb);
        load_b(stage, kb);
    }
    __device__ void load_segment(uint32_t stage, uint32_t kb, uint32_t i) const {
        const RowsOfB& b = from.b.segment[i];
        const uint32_t part = first_of_part(segment_cols(C, i), C.b_sharers(), rank);
        const SmemAddr to = smem.b(stage) + (cols_before_segment(C, i) + part) * GemmConfig::kTileK;
        const SmemAddr full = smem.full(stage);
        if constexpr (C.b_sharers() > 1)
            ptx::tma_load_multicast(to, b.map, full, k_of(kb), b.first + part, kAllRanks, p.b_policy);
        else ptx::tma_load(to, b.map, full, k_of(kb), b.first, p.b_policy);
    }
};

/// Blocks that load_first_round begins: as many as the ring holds, or one for each round-robin producer.
template <GemmConfig C>
__device__ uint32_t blocks_of_first_round(const Params<C>& p, KRange k) {
    constexpr bool kRoundRobin = kPlan<C>.producers == Producers::RoundRobin;
    return first_round(k, kRoundRobin && !p.prefetch_weights ? kProducerWarps : C.stages).size();
}

/// The first loads of a CTA of a dense product, by one thread: none need wait for an empty stage. They wait for the
/// previous kernels, as late as they can, as code comes from memory, too; with `prefetch_weights` loads of B do not.
template <GemmConfig C>
__device__ void load_first_round(const Params<C>& p, const Shared<C>& smem, const DenseScheduler& scheduler) {
    const BlockLoads<C> loads(p, smem, scheduler.tile<C>(), scheduler.rank, scheduler.k.begin);
    const uint32_t k_block = scheduler.k.begin, blocks = blocks_of_first_round<C>(p, scheduler.k);
    if (!p.prefetch_weights) {
        ptx::grid_dependency_wait();
#pragma unroll 1
        for (uint32_t stage = 0; stage < blocks; ++stage) loads.load(stage, k_block + stage);
        return;
    }
#pragma unroll 1
    for (uint32_t stage = 0; stage < blocks; ++stage) {
        loads.expect(stage);
        loads.load_b(stage, k_block + stage);
    }
    ptx::grid_dependency_wait();
#pragma unroll 1
    for (uint32_t stage = 0; stage < blocks; ++stage) loads.load_a(stage, k_block + stage);
}

/// Loads all tiles, by one thread, after load_first_round. Tiles of K-grouped products are published with their first
/// block; tiles without blocks are not.
template <GemmConfig C, typename Scheduler>
__device__ void load_tiles(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler) {
    auto at = RingCursor<C.stages>::producer();
    uint32_t begun = 0;
    if constexpr (!C.grouped()) begun = blocks_of_first_round<C>(p, scheduler.k);
    for (Tile tile; scheduler.template take<C>(tile); begun = 0) {
        const BlockLoads<C> loads(p, smem, tile, scheduler.rank, scheduler.k.begin);
        at += begun;
#pragma unroll 1
        for (uint32_t kb = scheduler.k.begin + begun; kb < scheduler.k.end; ++kb, ++at) {
            wait(smem.empty(at.stage), at.parity);
            if constexpr (C.k_groups())
                if (kb == scheduler.k.begin) publish(smem, at.stage, packed(tile, scheduler.k.size()));
            loads.load(at.stage, kb);
        }
    }
    if constexpr (C.k_groups()) {
        wait(smem.empty(at.stage), at.parity);
        publish(smem, at.stage, {});
        ptx::mbarrier_arrive(smem.full(at.stage));
    }
}

/// Round-robin producers: warp w loads tiles and scales of every kProducerWarps-th k-block, after load_first_round.
template <GemmConfig C>
__device__ void load_round_robin(const Params<C>& p, const Shared<C>& smem, DenseScheduler scheduler, uint32_t warp) {
    static_assert(kPlan<C>.producers == Producers::RoundRobin);
    ptx::grid_dependency_wait();
    // The TMA warp comes last: while it begins the first tiles the others copy their scales.
    uint32_t left_out = (warp + kProducerWarps - 1) % kProducerWarps;  // blocks before the next one of this warp
    uint32_t begun = blocks_of_first_round<C>(p, scheduler.k);
    auto at = RingCursor<C.stages>::producer();
    at += left_out;
    for (Tile tile; scheduler.template take<C>(tile); begun = 0) {
        const BlockLoads<C> loads(p, smem, tile, scheduler.rank, scheduler.k.begin);
        uint32_t kb = scheduler.k.begin + left_out;
        ScaleCopies<C> scales(p, tile, kb);
#pragma unroll 1
        for (; kb < scheduler.k.end; kb += kProducerWarps, at += kProducerWarps) {
            wait(smem.empty(at.stage), at.parity);
            if (kb >= scheduler.k.begin + begun && ptx::elect_one()) loads.load(at.stage, kb);
            __syncwarp();
            scales.fill(smem, at.stage);
            scales.advance(p, kProducerWarps);
        }
        left_out = kb - scheduler.k.end;
    }
}

/// The loads of one tile of a group, by one thread.
template <GemmConfig C>
struct GroupedLoads {
    static constexpr uint16_t kAllRanks = (1u << C.cluster) - 1;
    static constexpr uint32_t kRows = C.tile_m / C.a_sharers();  // of A that this CTA loads, at most
    const GroupedParams& p;
    uint32_t a_part;             // first row of this CTA's part in the tile
    uint32_t row, matrix, rows;  // of A
    const TensorMap* map;        // of A's first box, which has `first_rows` rows
    uint32_t first_rows;
    SegmentsOfB<C> segments_of_b;
    uint32_t group;  // of B
    uint32_t stage_bytes;

    __device__ GroupedLoads(const GroupedParams& params, const Tile& tile, uint32_t rank)
        : p(params), segments_of_b(SegmentsOfB<C>::of(params, tile)), group(tile.group) {
        a_part = first_of_part(C.tile_m, C.a_sharers(), rank);
        row = tile.row + a_part;
        matrix = matrix_of(p, tile);
        rows = existing_rows(a_part, kRows, tile.rows);
        const uint32_t bit = ptx::highest_bit(max(rows, 1));  // of no rows that of one, which nobody loads then
        map = rows == kRows ? &p.a.whole : &p.a_rows[bit];
        first_rows = rows == kRows ? kRows : 1u << bit;
        stage_bytes = (tile.rows + segments_of_b.count()) * GemmConfig::kTileK;
    }

    __device__ void load_a(SmemAddr to, SmemAddr full, const TensorMap* map, uint32_t kb, uint32_t first) const {
        const SmemAddr at = to + first * GemmConfig::kTileK;
        if constexpr (C.a_sharers() > 1)
            ptx::tma_load_multicast(at, map, full, kb * GemmConfig::kTileK, row + first, matrix, kAllRanks, p.a_policy);
        else ptx::tma_load(at, map, full, kb * GemmConfig::kTileK, row + first, matrix, p.a_policy);
    }
    /// Expects a k-block's bytes in an empty stage.
    __device__ void expect(const Shared<C>& smem, uint32_t stage) const {
        ptx::mbarrier_arrive_expect_tx(smem.full(stage), stage_bytes);
    }
    /// Issues the loads of a k-block. Only the group's rows of A are read: where a tile lacks rows, boxes of powers of
    /// two that add up to their number are loaded.
    __device__ void issue(const Shared<C>& smem, uint32_t stage, uint32_t kb) const {
        const SmemAddr a = smem.a(stage) + a_part * GemmConfig::kTileK, b = smem.b(stage), full = smem.full(stage);
        const uint32_t k = kb * GemmConfig::kTileK;
        if (rows > 0) load_a(a, full, map, kb, 0);
#pragma unroll
        for (uint32_t i = 0; i < n_segments(C); ++i) {
            const RowsOfB& rows_of_b = segments_of_b.segment[i];
            const SmemAddr at = b + cols_before_segment(C, i) * GemmConfig::kTileK;
            if (i == 0 || rows_of_b.map) ptx::tma_load(at, rows_of_b.map, full, k, rows_of_b.first, group, p.b_policy);
        }
#pragma unroll 1
        for (uint32_t first = first_rows; first < rows;) {
            const uint32_t i = ptx::highest_bit(rows - first);
            load_a(a, full, &p.a_rows[i], kb, first);
            first += 1u << i;
        }
    }
};

/// Prefetches to L2, while the sizes of groups are on their way, the first blocks of B that this CTA needs if each
/// group has expected_m rows; by one thread. Memory is idle then, and takes for two blocks of each CTA about as long as
/// for the sizes.
template <GemmConfig C>
__device__ void prefetch_expected_b(const GroupedParams& p, uint32_t rank) {
    if (p.groups.indices) return;
    const uint32_t index = blockIdx.x / C.cluster, tiles = min(kWarpSize, p.groups.groups) * p.expected.tiles.divisor;
    if (index >= tiles) return;
    const uint32_t slot = p.both_ends ? from_both_ends(index, tiles) : index;
    const Tile tile = expected_tile(C, p.raster, p.expected, slot, rank);
#pragma unroll
    for (uint32_t kb = 0; kb < 2; ++kb)
        if (kb < p.k_blocks) ptx::tma_prefetch(&p.b.whole, kb * GemmConfig::kTileK, tile.col, tile.group, p.b_policy);
}

/// Publishes a tile of a group to the math warps, by one lane of the TMA warp. A tile without rows is the end.
template <GemmConfig C>
__device__ void publish_rows(const GroupedParams& p, const Shared<C>& smem, uint32_t stage, const Tile& tile) {
    publish(smem, stage, packed(tile, shift_of<C>(p, tile)));
    if (tile.rows == 0) ptx::mbarrier_arrive(smem.full(stage));
}

/// The first round of loads of a grouped kernel, by the TMA warp.
template <GemmConfig C>
__device__ void load_first_blocks(const GroupedParams& p, const Shared<C>& smem, const Tile& tile, uint32_t rank) {
    const GroupedLoads<C> loads(p, tile, rank);
    if (!ptx::elect_one()) return;
    const uint32_t blocks = first_round({0, p.k_blocks}, C.stages).size();
    loads.issue(smem, 0, 0);  // before the tile is published, which has to be there when the stage is full
    publish_rows<C>(p, smem, 0, tile);
    loads.expect(smem, 0);
#pragma unroll 1
    for (uint32_t kb = 1; kb < blocks; ++kb) {
        loads.expect(smem, kb);
        loads.issue(smem, kb, kb);
    }
}

/// Begins the first tile of a CTA, if it has one, by the producer warps: none need wait for an empty stage.
template <GemmConfig C>
__device__ void begin_first_tile(const GroupedParams& p, const Shared<C>& smem, GroupedMScheduler scheduler,
                                 uint32_t warp) {
    Tile tile;
    if (!scheduler.take<C>(tile)) return;
    if (warp == 0) load_first_blocks<C>(p, smem, tile, scheduler.rank);
    __syncwarp();  // and ptxas keeps them in this order: loads take longer than scales
    if (warp > 0) copy_first_scales_async<C>(p, smem, tile, warp - 1);
}

/// Loads all tiles of groups, by one lane of a warp, after begin_first_tile. A tile is published with its first block.
template <GemmConfig C>
__device__ void load_grouped_tiles(const GroupedParams& p, const Shared<C>& smem, GroupedMScheduler scheduler) {
    static_assert(C.b_sharers() == 1, "neighbours along M may be of different groups");
    auto at = RingCursor<C.stages>::producer();
    for (uint32_t begun = first_round(scheduler.k, C.stages).size();; begun = 0) {
        Tile tile;
        const bool more = scheduler.take<C>(tile);
        if (!more) tile = {};
        const GroupedLoads<C> loads(p, tile, scheduler.rank);
        if (begun == 0 || !more) {
            wait(smem.empty(at.stage), at.parity);
            if (ptx::elect_one()) publish_rows<C>(p, smem, at.stage, tile);
            __syncwarp();
        }
        if (!more) return;
        at += begun;
        // All lanes walk: what only one of them kept would not lie in uniform registers, which TMA takes.
#pragma unroll 1
        for (uint32_t kb = begun; kb < scheduler.k.end; ++kb, ++at) {
            wait(smem.empty(at.stage), at.parity);
            if (ptx::elect_one()) {
                loads.expect(smem, at.stage);
                loads.issue(smem, at.stage, kb);
            }
            __syncwarp();
        }
    }
}

}  // namespace finegemm::device
