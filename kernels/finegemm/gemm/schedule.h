// Index to tile: which output tile a CTA works on, and which range of K.
// Layer gemm. All of it is integer arithmetic on values, so that tests prove that every tile is visited exactly once.
#pragma once

#include <finegemm/core/group_layout.h>
#include <finegemm/core/raster.h>
#include <finegemm/gemm/kernel_plan.h>

namespace finegemm {

/// A tile: the rows and columns of D that one CTA computes at once.
struct alignas(16) Tile {
    uint32_t row = 0, col = 0;  // the first ones; its other segments begin at segment_col
    uint32_t rows = 0;          // those that exist: a cluster may reach a whole tile past the end
    uint32_t group = 0;         // whose B it takes, or whose D it is
    constexpr bool operator==(const Tile&) const = default;
};

/// The share of rank `rank` of `splits`: shares differ by one block at most.
FG_HD constexpr KRange k_range(uint32_t k_blocks, uint32_t splits, uint32_t rank) {
    return {static_cast<uint32_t>(static_cast<uint64_t>(k_blocks) * rank / splits),
            static_cast<uint32_t>(static_cast<uint64_t>(k_blocks) * (rank + 1) / splits)};
}

/// The first blocks of `k`, for the stages 0, 1, 2, ... of the empty ring.
FG_HD constexpr KRange first_round(KRange k, uint32_t stages) { return {k.begin, min(k.end, k.begin + stages)}; }

/// The k-block at which the first vector of a range begins: vectors have `blocks` k-blocks, of which a range may have a
/// part. An empty range has none. If it had, a warp could be left out for more k-blocks than the ring has stages, after
/// which a parity does not tell one round from the next.
FG_HD constexpr uint32_t first_vector(KRange k, uint32_t blocks) {
    return k.size() > 0 ? k.begin / blocks * blocks : k.end;
}

/// CTA tiles that a cluster computes, along M and N.
FG_HD constexpr uint32_t cluster_tiles_m(const GemmConfig& c) { return c.b_sharers(); }
FG_HD constexpr uint32_t cluster_tiles_n(const GemmConfig& c) { return c.a_sharers(); }

/// The order of cluster tiles for a problem, in bands of about 2048 rows: a wave of tiles then reads few rows of A and
/// columns of B. Where D is narrow a wave reads all columns anyway, and bands of four tiles are better: CTAs that come
/// one after the other are on SMs of one GPC, for which L2 is read once if they load the same rows at the same time.
/// Heads with gaps are stored faster in fewer columns at a time: of 4096x32768x512 in 4% less time.
inline constexpr uint32_t kBandRows = 2048, kGapsBandRows = 4096, kNarrowBand = 4, kNarrowTiles = 16;
FG_HD constexpr Raster raster(const GemmConfig& c, uint32_t m, uint32_t n) {
    const uint32_t rows = c.tile_m * cluster_tiles_m(c), tiles_n = ceil_div(n, c.tile_n * cluster_tiles_n(c));
    const uint32_t wide = (facts_of(c.finish).moves_columns ? kGapsBandRows : kBandRows) / rows;
    return Raster::of(ceil_div(m, rows), tiles_n, tiles_n <= kNarrowTiles ? kNarrowBand : wide);
}
/// Raster for rows that only the device knows: the columns, and one whole band.
FG_HD constexpr Raster raster_of_columns(const GemmConfig& c, uint32_t n) { return raster(c, kBandRows, n); }

/// Column of D at which the i-th segments begin: the first segments of all tiles come first, those by which a cluster
/// reaches past the end included, then their second ones, and so on.
FG_HD constexpr uint32_t segments_begin(const GemmConfig& c, const Raster& order, uint32_t i) {
    return order.tiles_n * cluster_tiles_n(c) * cols_before_segment(c, i);
}
/// First column of segment i of the tile that begins at `col`. A narrow D has no column in the last segments.
FG_HD constexpr uint32_t segment_col(const GemmConfig& c, const Raster& order, uint32_t col, uint32_t i) {
    return i == 0 ? col : segments_begin(c, order, i) + col / segment_cols(c, 0) * segment_cols(c, i);
}
/// Column of D of the i-th column of the tile that begins at `col`.
FG_HD constexpr uint32_t column_of(const GemmConfig& c, const Raster& order, uint32_t col, uint32_t i) {
    const uint32_t segment = segment_of(c, i);
    return segment_col(c, order, col, segment) + i - cols_before_segment(c, segment);
}

/// The tile of the CTA with rank `rank` in the cluster that works on cluster tile `cluster_tile`.
FG_HD constexpr TileCoord cta_tile(const GemmConfig& c, TileCoord cluster_tile, uint32_t rank) {
    return {.m = cluster_tile.m * cluster_tiles_m(c) + (c.b_sharers() > 1 ? rank : 0),
            .n = cluster_tile.n * cluster_tiles_n(c) + (c.a_sharers() > 1 ? rank : 0)};
}

/// Rows of D that exist in `[first_row, first_row + rows)`: a cluster may reach a whole tile past the end.
FG_HD constexpr uint32_t existing_rows(uint32_t first_row, uint32_t rows, uint32_t m) {
    return first_row < m ? min(m - first_row, rows) : 0;
}

/// Cluster tiles of a span of rows of a grouped product. Each span numbers its own: no tile has rows of two spans.
/// `columns`: raster_of_columns.
FG_HD constexpr uint32_t span_tiles(const GemmConfig& c, const Raster& columns, RowRange rows) {
    return ceil_div(rows.size(), c.tile_m) * columns.tiles_n;
}
/// Rows of each tile of a span but the last one's, `below` tiles for `rows` rows. Swapped products take as long as a
/// tile has rows, so that tiles are as even as can be: CTAs then end together.
FG_HD constexpr uint32_t tile_height(const GemmConfig& c, uint32_t rows, uint32_t below) {
    return c.swapped() ? align_up(ceil_div(rows, below), kSwappedStep) : c.tile_m;
}
/// The tile of the CTA with rank `rank` in the cluster that works on cluster tile `index` of the span.
FG_HD constexpr Tile span_tile(const GemmConfig& c, const Raster& columns, RowRange rows, uint32_t index,
                               uint32_t rank) {
    const uint32_t below = ceil_div(rows.size(), c.tile_m), height = tile_height(c, rows.size(), below);
    const TileCoord at = cta_tile(c, columns.at(index, below), rank);
    const uint32_t row = rows.begin + at.m * height;
    return {.row = row, .col = at.n * segment_cols(c, 0), .rows = existing_rows(row, height, rows.end)};
}

/// The i-th of `count` tiles, alternately from both ends: where a few groups have most of the rows, their tiles, which
/// keep the tensor cores busy, run beside those of small groups, which keep the memory busy.
FG_HD constexpr uint32_t from_both_ends(uint32_t i, uint32_t count) { return i % 2 == 0 ? i / 2 : count - 1 - i / 2; }

/// Expected tiles of each group, before its size is known; at most kMost, as they only serve a guess at the first
/// tiles.
struct ExpectedGroups {
    static constexpr uint32_t kMost = 4096;
    uint32_t tiles_below = 1;  // cluster tiles, one below the other
    Divider tiles;             // of a group

    FG_HD static constexpr ExpectedGroups of(const GemmConfig& c, const Raster& columns, uint32_t rows) {
        const uint32_t below = max(1, min(ceil_div(rows, c.tile_m), kMost));
        return {below, Divider::by(max(1, below * columns.tiles_n))};
    }
};
/// Where cluster tile `index` of all groups would be if each had as many rows as expected: its columns, and its group.
/// A guess, for prefetches before sizes are known.
FG_HD constexpr Tile expected_tile(const GemmConfig& c, const Raster& columns, const ExpectedGroups& expected,
                                   uint32_t index, uint32_t rank) {
    const uint32_t group = expected.tiles.quotient(index), inside = index - group * expected.tiles.divisor;
    return {.col = cta_tile(c, columns.at(inside, expected.tiles_below), rank).n * segment_cols(c, 0), .group = group};
}

/// Up to so many groups in a band, and bytes of their weights, which stay in L2.
inline constexpr uint32_t kBandGroups = 16, kBandBytes = 4u << 20;

/// Groups that all have all rows: nothing is read to know their tiles. Rows of groups that are neighbours lie side by
/// side, as heads do, so the walk goes over the rows of a band of them, and memory sees long pieces of A and of D.
/// Where their weights are too many for that, bands have one group.
struct WholeGroups {
    uint32_t rows = 0;  // of each group; 0: groups have rows of their own
    uint32_t band = 1;  // groups
    Divider tiles;      // cluster tiles of a band
    Divider columns;    // of them side by side in a group
    Raster order;       // of the tiles of a band, whose groups are beside one another

    /// `weights`: bytes of those of a group.
    FG_HD static constexpr WholeGroups of(const GemmConfig& c, uint32_t groups, uint32_t rows, uint32_t n,
                                          uint64_t weights) {
        uint32_t band = kBandGroups;
        while (band > 1 && (groups % band != 0 || band * weights > kBandBytes)) --band;
        const Raster one = raster(c, rows, n);
        const Raster order = band > 1 ? Raster::of(one.tiles_m, band * one.tiles_n, 1) : one;
        return {.rows = rows,
                .band = band,
                .tiles = Divider::by(max(1, order.size())),
                .columns = Divider::by(max(1, one.tiles_n)),
                .order = order};
    }
    FG_HD constexpr bool any() const { return rows > 0; }
    /// The tile of the CTA with rank `rank` in the cluster that works on cluster tile `index` of all groups.
    FG_HD constexpr Tile tile(const GemmConfig& c, uint32_t index, uint32_t rank) const {
        const uint32_t first = tiles.quotient(index);
        TileCoord at = order.at(index - first * tiles.divisor);
        const uint32_t group = columns.quotient(at.n);
        at.n -= group * columns.divisor;
        at = cta_tile(c, at, rank);
        const uint32_t row = at.m * c.tile_m;
        return {.row = row,
                .col = at.n * segment_cols(c, 0),
                .rows = existing_rows(row, c.tile_m, rows),
                .group = first * band + group};
    }
};

/// Tile scheduler of dense kernels: every `stride`-th cluster tile, beginning with that of the CTA's own cluster.
struct DenseScheduler {
    FG_HD static constexpr bool published() { return false; }    // math warps run a scheduler of their own
    FG_HD static constexpr bool begun_early() { return false; }  // no loads of scales are issued during set-up
    FG_HD static constexpr bool any_k_range() {
        return false;
    }  // k-blocks of a tile begin at the first one, or where a split begins
    Raster order;
    uint32_t next, stride;  // in cluster tiles
    uint32_t rank;          // of this CTA in its cluster
    KRange k;               // of every tile
    uint32_t m;             // rows of D

    template <GemmConfig C>
    FG_HD static constexpr DenseScheduler of(const Raster& order, uint32_t m, uint32_t k_blocks, uint32_t cta,
                                             uint32_t ctas, uint32_t rank) {
        return {.order = order,
                .next = cta / C.cluster,
                .stride = ctas / C.cluster,
                .rank = rank,
                .k = k_range(k_blocks, C.k_splits(), C.k_splits() > 1 ? rank : 0),
                .m = m};
    }

    /// The next tile, if there is one; there is always a first one.
    template <GemmConfig C>
    FG_HD constexpr Tile tile() const {
        const TileCoord at = cta_tile(C, order.at(next), rank);
        const uint32_t row = at.m * C.tile_m;
        return {.row = row, .col = at.n * segment_cols(C, 0), .rows = existing_rows(row, C.tile_m, m)};
    }
    template <GemmConfig C>
    FG_HD constexpr bool take(Tile& out) {
        if (next >= order.size()) return false;
        out = tile<C>();
        next += stride;
        return true;
    }
};

/// Tile scheduler for groups of K: all tiles of the first group's D, then those of the next one's. Groups without
/// k-blocks have tiles like the others, as their D may have to become zero.
struct GroupedKScheduler {
    FG_HD static constexpr bool published() { return true; }
    FG_HD static constexpr bool begun_early() { return false; }
    FG_HD static constexpr bool any_k_range() { return true; }
    static constexpr uint32_t rank = 0;  // there are no clusters
    Raster order;                        // of each group's D
    KGroupLayout groups;
    uint32_t next, stride;  // in tiles
    uint32_t m;             // rows of D
    KRange k{};             // of the tile that was taken last

    template <GemmConfig C>
    FG_HD static constexpr GroupedKScheduler of(const Raster& order, const KGroupLayout& groups, uint32_t m,
                                                uint32_t cta, uint32_t ctas) {
        static_assert(C.cluster == 1);
        return {.order = order, .groups = groups, .next = cta, .stride = ctas, .m = m};
    }

    template <GemmConfig C>
    FG_HD constexpr bool take(Tile& out) {
        constexpr uint32_t kPerBlock = kScaleBlock / C.tile_k();
        const uint32_t group = next / order.size();
        if (group >= groups.groups) return false;
        const TileCoord at = order.at(next - group * order.size());
        const uint32_t row = at.m * C.tile_m;
        out = {.row = row, .col = at.n * segment_cols(C, 0), .rows = existing_rows(row, C.tile_m, m), .group = group};
        const KRange of_group = groups.group(group);  // in blocks of 128
        k = {of_group.begin * kPerBlock, of_group.end * kPerBlock};
        next += stride;
        return true;
    }
};

/// Pieces of K of a sum over stacks where the bits of a row may not depend on M.
inline constexpr uint32_t kInvariantPieces = 32;
/// Pieces that K is cut into, for tiles of D and CTAs that may work at once: all of these have a piece of a tile then.
/// 0 tiles: their number may not count.
FG_HD constexpr uint32_t k_pieces(uint32_t k_blocks, uint32_t tiles, uint32_t ctas) {
    return max(1, min(k_blocks, tiles == 0 ? kInvariantPieces : ctas / tiles));
}

/// Tile scheduler for sums over stacks: all tiles of the first piece of K, then those of the next one's. CTAs that work
/// at the same time share the rows that they load.
struct PieceScheduler {
    FG_HD static constexpr bool published() { return true; }
    FG_HD static constexpr bool begun_early() { return false; }
    FG_HD static constexpr bool any_k_range() { return true; }
    static constexpr uint32_t rank = 0;  // there are no clusters
    Raster order;
    uint32_t pieces, k_blocks;  // of all matrices
    uint32_t next, stride;      // in tiles
    uint32_t m;                 // rows of D
    KRange k{};                 // of the tile that was taken last

    template <GemmConfig C>
    FG_HD constexpr bool take(Tile& out) {
        static_assert(C.cluster == 1);
        const uint32_t piece = next / order.size();
        if (piece >= pieces) return false;
        const TileCoord at = order.at(next - piece * order.size());
        const uint32_t row = at.m * C.tile_m;
        out = {.row = row, .col = at.n * segment_cols(C, 0), .rows = existing_rows(row, C.tile_m, m), .group = piece};
        k = k_range(k_blocks, pieces, piece);
        next += stride;
        return true;
    }
};

/// Packs a tile and a number that is published with it into a Tile: rows and group share a word.
FG_HD constexpr Tile packed(const Tile& tile, uint32_t number) {
    return {.row = tile.row, .col = tile.col, .rows = tile.rows | tile.group << 16, .group = number};
}
FG_HD constexpr Tile unpacked(const Tile& packed) {
    return {.row = packed.row, .col = packed.col, .rows = packed.rows & 0xffff, .group = packed.rows >> 16};
}

/// CTAs to launch on a device that can hold `resident_clusters` of this kernel at once.
FG_HD constexpr uint32_t grid_size(const GemmConfig& c, uint32_t cluster_tiles, uint32_t resident_clusters) {
    return c.cluster * (kernel_plan(c).persistent ? min(cluster_tiles, resident_clusters) : cluster_tiles);
}

/// Rows of an operand in its last tile. TMA takes longer for rows that do not exist than for others, so the
/// last tile's loads have a box of their own. Tiles that CTAs share are loaded whole.
FG_HD constexpr uint32_t rows_of_last_tile(uint32_t extent, uint32_t tile, uint32_t sharers) {
    const uint32_t rest = extent % tile;
    return sharers > 1 || rest == 0 ? tile : rest;
}

/// Rows of B in the box of its last tile: these are in the last segment that D is wide enough for.
FG_HD constexpr uint32_t b_rows_of_last(const GemmConfig& c, uint32_t n) {
    uint32_t segment = n_segments(c) - 1;
    while (n <= segments_begin(c, raster_of_columns(c, n), segment)) --segment;
    return rows_of_last_tile(n, segment_cols(c, segment), c.b_sharers());
}

}  // namespace finegemm
