// GroupedMScheduler: the tiles of one CTA of a GEMM with groups of rows. Layer device. It needs no preparation: the
// sizes of the groups are read from the device's memory as the walk comes to them, so unused capacity costs nothing.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/schedule/counted_choices.cuh>

namespace finegemm::device {

/// Tile scheduler of a converged warp, in which each lane knows one span of rows.
struct GroupedMScheduler {
    FG_HD static constexpr bool published() { return true; }
    FG_HD static constexpr bool begun_early() { return true; }
    FG_HD static constexpr bool any_k_range() { return false; }
    const GroupedParams& p;
    uint32_t wave, slot;  // the next tile is wave + slot: in cluster tiles, counted through all spans
    uint32_t stride;      // of waves
    uint32_t rank;        // of this CTA in its cluster
    KRange k;             // of every tile
    uint32_t first = 0;   // the span of lane 0
    RowRange rows{};      // of this lane's span
    uint32_t group = 0;   // of this lane's span
    uint32_t begin = 0;   // cluster tiles of the spans before that of lane 0
    uint32_t end = 0;     // cluster tiles of the spans up to this lane's, and of it
    // Of the span of the tile that was taken last, none to begin with: cluster tiles before it, and in it.
    uint32_t before = 0, tiles = 0;
    RowRange span_rows{};
    uint32_t span_group = 0;

    /// `first`: ends_of_lane<C>(p, 0). They are loaded early, as nothing can begin before they are there.
    template <GemmConfig C>
    __device__ static GroupedMScheduler of(const GroupedParams& p, GroupLayout::Ends first, uint32_t cta, uint32_t ctas,
                                           uint32_t rank) {
        GroupedMScheduler scheduler{
            .p = p, .wave = 0, .slot = cta / C.cluster, .stride = ctas / C.cluster, .rank = rank, .k = {0, p.k_blocks}};
        if (!walks_whole<C>(p)) scheduler.look_at<C>(0, first, 0);
        return scheduler;
    }
    /// Tiles are those of WholeGroups. Kernels with scales walk over such groups as over others.
    template <GemmConfig C>
    __device__ static bool walks_whole(const GroupedParams& p) {
        return C.b.scaling == Scaling::None && p.whole.any();
    }
    /// Ends of the 32 spans from `first` on, one for each lane.
    template <GemmConfig C>
    __device__ static GroupLayout::Ends ends_of_lane(const GroupedParams& p, uint32_t first) {
        if (C.counts_choices) return ends_of_choice(choices_of(p), p.groups.groups);
        const uint32_t span = first + threadIdx.x % kWarpSize;
        return span < p.groups.spans() ? p.groups.ends_of(span) : GroupLayout::Ends{};
    }
    /// Each choice has a span, which is empty but for the first one of its group.
    template <GemmConfig C>
    __device__ static uint32_t spans(const GroupedParams& p) {
        return C.counts_choices ? choices_of(p).count : p.groups.spans();
    }

    template <GemmConfig C>
    __device__ bool take(Tile& out) {
        uint32_t next = wave + slot;
        if (walks_whole<C>(p)) {
            out = p.whole.tile(C, next, rank);
            step();
            return out.group < p.groups.groups;
        }
        // Most tiles are in the span of the previous tile: finding another span takes as long as a k-block.
        if ((p.both_ends || next - before >= tiles) && !find<C>(next)) return false;
        out = span_tile(C, p.raster, span_rows, next - before, rank);
        out.group = span_group;
        step();
        return true;
    }

private:
    /// Slots rotate: tall and short tiles alternate, and their period often divides the number of CTAs, of which some
    /// would then get all the tall ones.
    __device__ void step() {
        wave += stride;
        slot = slot + 1 == stride ? 0 : slot + 1;
    }

    /// Finds the span that has tile `next`; with `both_ends`, first maps `next` to the tile that comes then.
    template <GemmConfig C>
    __device__ bool find(uint32_t& next) {
        uint32_t last = ptx::value_of(end, kWarpSize - 1);
        for (; next >= last; last = ptx::value_of(end, kWarpSize - 1)) {
            if (first + kWarpSize >= spans<C>(p)) return false;
            look_at<C>(first + kWarpSize, ends_of_lane<C>(p, first + kWarpSize), last);
        }
        if (p.both_ends) next = begin + from_both_ends(next - begin, last - begin);
        const uint32_t lane = ptx::count_bits(ptx::ballot(end <= next));
        span_group = ptx::value_of(group, lane);
        span_rows = {ptx::value_of(rows.begin, lane), ptx::value_of(rows.end, lane)};
        tiles = span_tiles(C, p.raster, span_rows);
        before = ptx::value_of(end, lane) - tiles;
        return true;
    }

    /// Moves the lanes to 32 spans, before which there are `before` cluster tiles.
    template <GemmConfig C>
    __device__ void look_at(uint32_t span, GroupLayout::Ends lane_ends, uint32_t before) {
        const uint32_t lane = threadIdx.x % kWarpSize;
        first = span;
        begin = before;
        rows = p.groups.range(lane_ends);
        group = lane_ends.group;
        if (p.groups.indices) join_blocks();
        if (C.swapped()) sort_spans();
        end = span_tiles(C, p.raster, rows);
#pragma unroll
        for (uint32_t distance = 1; distance < kWarpSize; distance *= 2) {
            const uint32_t below = ptx::value_below(end, distance);
            if (lane >= distance) end += below;
        }
        end += before;
    }

    /// Sorts the spans of the lanes, that with the most rows first: the CTAs' last tiles are short then. A bitonic
    /// sort.
    __device__ void sort_spans() {
        const uint32_t lane = threadIdx.x % kWarpSize;
        constexpr uint32_t kMostRows = 0xffffffff / kWarpSize;
        uint32_t key = (kMostRows - min(rows.size(), kMostRows)) * kWarpSize + lane;
#pragma unroll
        for (uint32_t run = 2; run <= kWarpSize; run *= 2)
#pragma unroll
            for (uint32_t apart = run / 2; apart > 0; apart /= 2) {
                const uint32_t other = ptx::value_of(key, lane ^ apart);
                key = ((lane & apart) == 0) == ((lane & run) == 0) ? min(key, other) : max(key, other);
            }
        const uint32_t from = key % kWarpSize;
        rows = {ptx::value_of(rows.begin, from), ptx::value_of(rows.end, from)};
        group = ptx::value_of(group, from);
    }

    /// Blocks of one group that follow one another without padding become one span, in the lane of the first one.
    __device__ void join_blocks() {
        const uint32_t lane = threadIdx.x % kWarpSize;
        const uint32_t group_above = ptx::value_below(group, 1), end_above = ptx::value_below(rows.end, 1);
        const bool joins = lane > 0 && rows.size() > 0 && group == group_above && rows.begin == end_above;
        // Bit i: the lane i + 1 above this one begins a span. None does: all lanes above join.
        const uint32_t begins = ptx::ballot(!joins) >> lane >> 1;
        rows.end = ptx::value_of(rows.end, begins == 0 ? kWarpSize - 1 : lane + ptx::lowest_bit(begins));
        if (joins) rows.begin = rows.end;
    }
};

/// Index of the matrix of a stack (A, sfa or D) in which a tile lies.
__device__ inline uint32_t matrix_of(const GroupedParams& p, const Tile& tile) {
    return p.groups.stacked ? tile.group : 0;
}

}  // namespace finegemm::device
