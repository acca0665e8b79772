// Producers of tiles of A and B, by TMA. Layer device.
// The producers of scales (load/scales.cuh) fill the same stages and arrive at the same barriers.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/schedule/tiles.cuh>

namespace finegemm::device {

/// First row of the part of an operand's tile that this CTA loads: with sharers each loads a part, for all of them.
__device__ inline uint32_t first_of_part(uint32_t rows, uint32_t sharers, uint32_t rank) {
    return sharers > 1 ? rank * (rows / sharers) : 0;
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
struct TileMaps {
    const TensorMap* a;
    SegmentsOfB<C> b;
    uint32_t rows, first_k_block;
};
template <GemmConfig C>
__device__ inline TileMaps<C> whole_maps_of(const Params<C>& p, const Tile& tile) {
    const bool a_last = tile.row + C.tile_m > p.m;
    const auto b = SegmentsOfB<C>::of(p, tile);
    return {a_last ? &p.a.last : &p.a.whole, b, (a_last ? p.a_rows_of_last : C.tile_m) + b.count(), 0};
}
template <GemmConfig C>
__device__ inline TileMaps<C> maps_of(const SegmentedParams& p, const Tile& tile, uint32_t /*first_k_block*/) {
    return whole_maps_of<C>(p, tile);
}
template <GemmConfig C>
__device__ inline TileMaps<C> maps_of(const SummedParams& p, const Tile& tile, uint32_t /*first_k_block*/) {
    return whole_maps_of<C>(p, tile);
}
template <GemmConfig C>
__device__ inline TileMaps<C> maps_of(const KGroupedParams& p, const Tile& tile, uint32_t first_k_block) {
    if (!p.blocks) return whole_maps_of<C>(p, tile);
    const TensorMap* const maps = (p.listed_blocks ? p.listed_blocks : p.block_maps) + 2 * tile.group;
    if (p.listed_blocks) {
        ptx::acquire_tensor_map(maps);
        ptx::acquire_tensor_map(maps + 1);
    }
    return {maps, {{{maps + 1, tile.col, C.tile_n}}}, C.tile_m + C.tile_n, first_k_block};
}

/// Loads rows of an operand to this CTA, or with sharers to the whole cluster. `at`: coordinates.
template <GemmConfig C, uint32_t Sharers, typename... At>
__device__ inline void load_rows(SmemAddr to, const TensorMap* map, SmemAddr full, uint64_t policy, At... at) {
    constexpr uint16_t kAllRanks = (1u << C.cluster) - 1;
    if constexpr (Sharers > 1) ptx::tma_load_multicast(to, map, full, at..., kAllRanks, policy);
    else ptx::tma_load(to, map, full, at..., policy);
}

/// Loads a k-block of rows; of a stack from the matrix that has it.
template <GemmConfig C, uint32_t Sharers>
__device__ inline void load_block(const GemmParams&, SmemAddr to, const TensorMap* map, SmemAddr full, uint64_t policy,
                                  uint32_t kb, uint32_t row) {
    load_rows<C, Sharers>(to, map, full, policy, kb * C.tile_k(), row);
}
template <GemmConfig C, uint32_t Sharers>
__device__ inline void load_block(const SummedParams& p, SmemAddr to, const TensorMap* map, SmemAddr full,
                                  uint64_t policy, uint32_t kb, uint32_t row) {
    const uint32_t matrix = p.matrix_blocks.quotient(kb), first = matrix * p.matrix_blocks.divisor;
    load_rows<C, Sharers>(to, map, full, policy, (kb - first) * C.tile_k(), row, matrix);
}

/// Loads `rows` rows of an MN-major operand from `row` on, at most `Most`: box after box of kMnBox, each with a
/// k-block.
template <uint32_t Most, typename... Matrix>
__device__ inline void load_mn_boxes(SmemAddr to, const TensorMap* map, SmemAddr full, uint64_t policy, uint32_t k,
                                     uint32_t row, uint32_t rows, Matrix... matrix) {
#pragma unroll
    for (uint32_t i = 0; i < Most; i += kMnBox)
        if (i < rows) ptx::tma_load(to + i * kRowBytes, map, full, row + i, k, matrix..., policy);
}

/// The barrier that loads of A arrive at.
template <GemmConfig C>
__device__ inline SmemAddr full_of_a(const Shared<C>& smem, uint32_t stage) {
    return C.decodes ? smem.codes_full(stage) : smem.full(stage);
}

/// The loads of one tile's k-blocks, by one thread. Of a shared operand this CTA loads its part of the rows and
/// multicasts it to the whole cluster.
template <GemmConfig C>
struct BlockLoads {
    static_assert(has_layouts(C));
    const Params<C>& p;
    const Shared<C>& smem;
    TileMaps<C> from;
    uint32_t a_row, a_part, rank;

    __device__ BlockLoads(const Params<C>& params, const Shared<C>& shared, const Tile& tile, uint32_t cluster_rank,
                          uint32_t first_k_block)
        : p(params),
          smem(shared),
          from(maps_of<C>(params, tile, first_k_block)),
          a_part(first_of_part(C.tile_m, C.a_sharers(), cluster_rank)),
          rank(cluster_rank) {
        a_row = tile.row + a_part;
    }

    __device__ uint32_t k_of(uint32_t kb) const { return (kb - from.first_k_block) * C.tile_k(); }

    /// Expects a k-block's bytes in an empty stage.
    __device__ void expect(uint32_t stage) const {
        const uint32_t of_codes = C.decodes ? from.rows - from.b.count() : 0;
        ptx::mbarrier_arrive_expect_tx(smem.full(stage), (from.rows - of_codes) * kRowBytes);
        if (C.decodes) ptx::mbarrier_arrive_expect_tx(smem.codes_full(stage), of_codes * kRowBytes);
    }
    __device__ void load_a(uint32_t stage, uint32_t kb) const {
        const SmemAddr to = smem.codes(stage) + a_part * kRowBytes, full = full_of_a(smem, stage);
        if (C.a.major == Major::MN)
            load_mn_boxes<C.tile_m>(to, from.a, full, p.a_policy, k_of(kb), a_row, from.rows - from.b.count());
        else load_block<C, C.a_sharers()>(p, to, from.a, full, p.a_policy, kb - from.first_k_block, a_row);
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
        const SmemAddr to = smem.b(stage) + (cols_before_segment(C, i) + part) * kRowBytes;
        const SmemAddr full = smem.full(stage);
        if (C.b.major == Major::MN) load_mn_boxes<C.tile_n>(to, b.map, full, p.b_policy, k_of(kb), b.first, b.count);
        else load_block<C, C.b_sharers()>(p, to, b.map, full, p.b_policy, kb - from.first_k_block, b.first + part);
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

/// Loads all tiles, by one lane of a warp, after load_first_round. Tiles of K-grouped products are published with their
/// first block; tiles without blocks are not.
template <GemmConfig C, typename Scheduler>
__device__ void load_tiles(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler) {
    if (!ptx::elect_one()) return;
    auto at = RingCursor<C.stages>::producer();
    uint32_t begun = Scheduler::published() ? 0 : blocks_of_first_round<C>(p, scheduler.k);
    for (Tile tile; scheduler.template take<C>(tile); begun = 0) {
        const BlockLoads<C> loads(p, smem, tile, scheduler.rank, scheduler.k.begin);
        at += begun;
#pragma unroll 1
        for (uint32_t kb = scheduler.k.begin + begun; kb < scheduler.k.end; ++kb, ++at) {
            wait(smem.empty(at.stage), at.parity);
            if (Scheduler::published() && kb == scheduler.k.begin)
                publish(smem, at.stage, packed(tile, scheduler.k.size()));
            loads.load(at.stage, kb);
        }
    }
    if (Scheduler::published()) {
        wait(smem.empty(at.stage), at.parity);
        publish(smem, at.stage, {});
        ptx::mbarrier_arrive(smem.full(at.stage));
    }
}

}  // namespace finegemm::device
