// The tiles of one CTA of a grouped GEMM. Layer device. Nothing is prepared for it: the sizes of the groups are read
// from the device's memory as the walk comes to them, so that capacity which no group uses costs nothing.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

/// Of a warp that stays together: each lane knows one segment of rows.
struct GroupWalk {
    const GroupedParams& p;
    uint32_t wave, place;  // the next tile is wave + place: in cluster tiles, counted through all segments
    uint32_t stride;       // of waves
    uint32_t rank;         // of this CTA in its cluster
    KRange k;              // of every tile
    uint32_t first = 0;    // the segment of lane 0
    RowRange rows{};       // of this lane's segment
    uint32_t begin = 0;    // cluster tiles of the segments before that of lane 0
    uint32_t end = 0;      // and of those up to this lane's segment, and of it
    // The segment of the tile that was taken last, none to begin with; cluster tiles of those before it, and of it.
    uint32_t segment = 0, before = 0, tiles = 0;
    RowRange segment_rows{};

    /// `first`: ends_of_lane(p, 0). They are loaded early, as nothing can begin before they are there.
    template <GemmConfig C>
    __device__ static GroupWalk of(const GroupedParams& p, GroupLayout::Ends first, uint32_t cta, uint32_t ctas,
                                   uint32_t rank) {
        GroupWalk walk{.p = p,
                       .wave = 0,
                       .place = cta / C.cluster,
                       .stride = ctas / C.cluster,
                       .rank = rank,
                       .k = {0, p.k_blocks}};
        walk.look_at<C>(0, first, 0);
        return walk;
    }
    /// Of the segment `first` and those that follow it, one for each lane.
    __device__ static GroupLayout::Ends ends_of_lane(const GroupedParams& p, uint32_t first) {
        const uint32_t segment = first + threadIdx.x % kWarpSize;
        return segment < p.groups.segments() ? p.groups.ends_of(segment) : GroupLayout::Ends{};
    }

    template <GemmConfig C>
    __device__ bool take(Tile& out) {
        uint32_t next = wave + place;
        // Most tiles are of the segment of the one before: what finds another one takes as long as a k-block.
        if ((p.both_ends || next - before >= tiles) && !find<C>(next)) return false;
        out = segment_tile(C, p.raster, segment_rows, next - before, rank);
        out.group = group_of(out.row);
        // Places rotate: tiles that follow one another have many rows and few in turn, and their number often divides
        // that of the CTAs, of which some would then get all the large ones.
        wave += stride;
        place = place + 1 == stride ? 0 : place + 1;
        return true;
    }

private:
    /// The segment that has tile `next`, which is another one if both ends take turns.
    template <GemmConfig C>
    __device__ bool find(uint32_t& next) {
        uint32_t last = ptx::value_of(end, kWarpSize - 1);
        for (; next >= last; last = ptx::value_of(end, kWarpSize - 1)) {
            if (first + kWarpSize >= p.groups.segments()) return false;
            look_at<C>(first + kWarpSize, ends_of_lane(p, first + kWarpSize), last);
        }
        if (p.both_ends) next = begin + from_both_ends(next - begin, last - begin);
        const uint32_t lane = ptx::count_bits(ptx::ballot(end <= next));
        segment = first + lane;
        segment_rows = {ptx::value_of(rows.begin, lane), ptx::value_of(rows.end, lane)};
        tiles = segment_tiles(C, p.raster, segment_rows);
        before = ptx::value_of(end, lane) - tiles;
        return true;
    }

    /// Moves the lanes to 32 segments, before which there are `before` cluster tiles.
    template <GemmConfig C>
    __device__ void look_at(uint32_t segment, GroupLayout::Ends lane_ends, uint32_t before) {
        const uint32_t lane = threadIdx.x % kWarpSize;
        first = segment;
        begin = before;
        rows = p.groups.range(lane_ends);
        end = segment_tiles(C, p.raster, rows);
#pragma unroll
        for (uint32_t distance = 1; distance < kWarpSize; distance *= 2) {
            const uint32_t below = ptx::value_below(end, distance);
            if (lane >= distance) end += below;
        }
        end += before;
    }

    /// Tiles of padding take any B: nothing of them is stored but zeros.
    __device__ uint32_t group_of(uint32_t row) const {
        if (!p.groups.indices) return segment;
        const int32_t index = p.groups.indices[row];
        return p.groups.is_group(index) ? static_cast<uint32_t>(index) : 0;
    }
};

/// Which of a stack of A, sfa or D a tile lies in.
__device__ inline uint32_t matrix_of(const GroupedParams& p, const Tile& tile) {
    return p.groups.stacked ? tile.group : 0;
}

}  // namespace finegemm::device
