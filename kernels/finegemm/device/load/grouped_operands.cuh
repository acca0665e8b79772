// Producers of tiles of A and B for groups of rows. Layer device.
#pragma once

#include <finegemm/device/load/operands.cuh>
#include <finegemm/device/load/scales_split.cuh>

namespace finegemm::device {

/// The loads of one tile of a group, by one thread.
template <GemmConfig C>
struct GroupedLoads {
    static_assert(has_layouts(C));
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
        stage_bytes = ((gathers() ? 0 : loaded_rows(C.a, tile.rows)) + segments_of_b.count()) * kRowBytes;
    }

    __device__ void load_a(SmemAddr to, SmemAddr full, const TensorMap* map, uint32_t kb, uint32_t first) const {
        const SmemAddr at = to + first * kRowBytes;
        load_rows<C, C.a_sharers()>(at, map, full, p.a_policy, kb * C.tile_k(), row + first, matrix);
    }
    /// Expects a k-block's bytes in an empty stage.
    __device__ void expect(const Shared<C>& smem, uint32_t stage) const {
        ptx::mbarrier_arrive_expect_tx(smem.full(stage), stage_bytes);
    }
    /// Issues the loads of a k-block. Only the group's rows of A are read: where a tile lacks rows, boxes of powers of
    /// two that add up to their number are loaded. An MN-major A is one of groups with matrices of their own, so that
    /// boxes begin at multiples of 16 bytes, as they must.
    template <bool OfA = true, bool OfB = true>
    __device__ void issue(const Shared<C>& smem, uint32_t stage, uint32_t kb) const {
        const SmemAddr a = smem.a(stage) + a_part * kRowBytes, b = smem.b(stage), full = smem.full(stage);
        const uint32_t k = kb * C.tile_k();
        if (!OfA || gathers()) {
        } else if (C.a.major == Major::MN) {
            load_mn_boxes<C.tile_m>(a, &p.a.whole, full, p.a_policy, k, row, rows, matrix);
        } else if (rows > 0) {
            load_a(a, full, map, kb, 0);
        }
#pragma unroll
        for (uint32_t i = 0; OfB && i < n_segments(C); ++i) {
            const RowsOfB& rows_of_b = segments_of_b.segment[i];
            const SmemAddr at = b + cols_before_segment(C, i) * kRowBytes;
            if (C.b.major == Major::MN)
                load_mn_boxes<C.tile_n>(at, rows_of_b.map, full, p.b_policy, k, rows_of_b.first, rows_of_b.count,
                                        group);
            else if (i == 0 || rows_of_b.map)
                ptx::tma_load(at, rows_of_b.map, full, k, rows_of_b.first, group, p.b_policy);
        }
#pragma unroll 1
        for (uint32_t first = first_rows; OfA && C.a.major == Major::K && !gathers() && first < rows;) {
            const uint32_t i = ptx::highest_bit(rows - first);
            load_a(a, full, &p.a_rows[i], kb, first);
            first += 1u << i;
        }
    }

private:
    /// Are the rows of A found by numbers? The scale warps copy them then (NumberedRows).
    __device__ bool gathers() const { return numbers_of_a(static_cast<const KernelParams<C>&>(p)); }
};

/// Prefetches to L2, while the sizes of groups are on their way, the first blocks of B that this CTA needs if each
/// group has expected_m rows; by one thread. Memory is idle then, and takes for two blocks of each CTA about as long as
/// for the sizes.
template <GemmConfig C>
__device__ void prefetch_expected_b(const GroupedParams& p, uint32_t rank) {
    const uint32_t index = blockIdx.x / C.cluster, tiles = min(kWarpSize, p.groups.groups) * p.expected.tiles.divisor;
    if (index >= tiles) return;
    const uint32_t slot = p.both_ends ? from_both_ends(index, tiles) : index;
    const Tile tile = expected_tile(C, p.raster, p.expected, slot, rank);
#pragma unroll
    for (uint32_t kb = 0; kb < 2; ++kb)
        if (kb < p.k_blocks) {
            if (C.b.major == Major::MN) {
#pragma unroll
                for (uint32_t i = 0; i < C.tile_n; i += kMnBox)
                    if (tile.col + i < p.n)
                        ptx::tma_prefetch(&p.b.whole, tile.col + i, kb * C.tile_k(), tile.group, p.b_policy);
            } else {
                ptx::tma_prefetch(&p.b.whole, kb * C.tile_k(), tile.col, tile.group, p.b_policy);
            }
        }
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

/// Begins the first tile of a CTA whose groups are counted, if it has one, by the producer warps: with B, which no
/// kernel that this one overlaps with writes, while these end; then with A and the scales. Without prefetch_weights B
/// waits for half of the stages: what those kernels still load and store would come behind it.
template <GemmConfig C>
__device__ void begin_counted_tile(const GroupedParams& p, const Shared<C>& smem, GroupLayout::Ends first_ends,
                                   uint32_t warp) {
    GroupedMScheduler scheduler = scheduler_of<C>(p, first_ends);
    Tile tile;
    const bool exists = scheduler.take<C>(tile), loads = exists && warp == 0 && ptx::elect_one();
    const GroupedLoads<C> operands(p, tile, scheduler.rank);
    const uint32_t blocks = first_round({0, p.k_blocks}, C.stages).size();
    const uint32_t early = p.prefetch_weights ? blocks : min(blocks, C.stages / 2);
    if (loads) publish_rows<C>(p, smem, 0, tile);
#pragma unroll 1
    for (uint32_t kb = 0; loads && kb < early; ++kb) {
        operands.expect(smem, kb);
        operands.template issue<false, true>(smem, kb, kb);
    }
    ptx::grid_dependency_wait();
#pragma unroll 1
    for (uint32_t kb = 0; loads && kb < early; ++kb) operands.template issue<true, false>(smem, kb, kb);
#pragma unroll 1
    for (uint32_t kb = early; loads && kb < blocks; ++kb) {
        operands.expect(smem, kb);
        operands.issue(smem, kb, kb);
    }
    __syncwarp();
    if (exists && warp > 0) FirstScales<C>::load(p, smem, tile, warp - 1);
}

/// Begins the first tile of a CTA, if it has one, by the producer warps: none need wait for an empty stage. That of
/// whole groups takes a third of the instructions, which in a short kernel come from memory as late as A and B.
template <GemmConfig C>
__device__ void begin_first_tile(const GroupedParams& p, const Shared<C>& smem, GroupLayout::Ends first_ends,
                                 uint32_t warp) {
    if (GroupedMScheduler::walks_whole<C>(p)) {
        const uint32_t rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
        const Tile tile = p.whole.tile(C, blockIdx.x / C.cluster, rank);
        if (warp == 0 && tile.group < p.groups.groups) load_first_blocks<C>(p, smem, tile, rank);
        return;
    }
    GroupedMScheduler scheduler = scheduler_of<C>(p, first_ends);
    Tile tile;
    if (!scheduler.take<C>(tile)) return;
    if (warp == 0) load_first_blocks<C>(p, smem, tile, scheduler.rank);
    __syncwarp();  // and ptxas keeps them in this order: loads take longer than scales
    if (kPlan<C>.scale_path != ScalePath::None && warp > 0) FirstScales<C>::load(p, smem, tile, warp - 1);
}

/// Loads all tiles of groups, by one lane of a warp, after begin_first_tile. A tile is published with its first block.
template <GemmConfig C>
__device__ void load_tiles(const GroupedParams& p, const Shared<C>& smem, GroupedMScheduler scheduler) {
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
