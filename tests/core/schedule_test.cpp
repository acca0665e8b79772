// Index to tile and range of K: every tile exactly once, whatever the grid.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/gemm/schedule.h>

#include "support/configs.h"

namespace finegemm {
namespace {

using Coordinates = std::pair<uint32_t, uint32_t>;

TEST(Raster, VisitsEveryTileExactlyOnceAndNoneOutside) {
    for (uint32_t tiles_m = 1; tiles_m <= 20; ++tiles_m)
        for (uint32_t tiles_n : {1u, 2u, 7u, 16u})
            for (uint32_t band = 1; band <= tiles_m + 2; ++band) {
                const Raster raster = Raster::of(tiles_m, tiles_n, band);
                std::set<Coordinates> seen;
                for (uint32_t i = 0; i < raster.size(); ++i) {
                    const TileCoord at = raster.at(i);
                    ASSERT_LT(at.m, tiles_m);
                    ASSERT_LT(at.n, tiles_n);
                    seen.insert({at.m, at.n});
                }
                ASSERT_EQ(seen.size(), tiles_m * tiles_n);
            }
}

/// Rows of A and columns of B that tiles of one wave read, summed over waves, for square tiles.
uint32_t operands_read(const Raster& raster, uint32_t wave) {
    uint32_t total = 0;
    for (uint32_t first = 0; first < raster.size(); first += wave) {
        std::set<uint32_t> rows, cols;
        for (uint32_t i = first; i < std::min(first + wave, raster.size()); ++i) {
            rows.insert(raster.at(i).m);
            cols.insert(raster.at(i).n);
        }
        total += static_cast<uint32_t>(rows.size() + cols.size());
    }
    return total;
}

TEST(Raster, BandsReadLessThanHalfOfWhatRowsOrColumnsDo) {
    const GemmConfig c{.tile_m = 128, .tile_n = 128};
    const Raster bands = raster(c, 64 * 128, 64 * 128);
    const uint32_t read = operands_read(bands, 132);
    EXPECT_LT(2 * read, operands_read(Raster::of(64, 64, 1), 132)) << "row after row";
    EXPECT_LT(2 * read, operands_read(Raster::of(64, 64, 64), 132)) << "column after column";
}

TEST(Raster, NeighboursInANarrowMatrixReadFewRowsAndColumns) {
    const GemmConfig c{.tile_m = 64, .tile_n = 80};
    constexpr uint32_t kOfGpc = 16;
    const uint32_t tiles_m = 1024 / c.tile_m, tiles_n = ceil_div(576u, c.tile_n);
    const uint32_t read = operands_read(raster(c, 1024, 576), kOfGpc);
    EXPECT_EQ(read, (4 + 4) * tiles_m * tiles_n / kOfGpc) << "squares";
    EXPECT_LT(2 * read, operands_read(Raster::of(tiles_m, tiles_n, tiles_m), kOfGpc)) << "column after column";
}

TEST(Raster, BandsHaveAtLeastOneTileAndAtMostAll) {
    for (const GemmConfig& c : test::kConfigs)
        for (uint32_t m : {1u, 64u, 129u, 1000u, 2048u, 2049u, 100000u}) {
            const Raster order = raster(c, m, 8);
            EXPECT_GE(order.band.divisor, 1u);
            EXPECT_LE(order.band.divisor, order.tiles_m);
        }
}

TEST(KRange, OfAFirstRoundFillsTheRingOrEndsWithK) {
    for (uint32_t begin : {0u, 1u, 28u})
        for (uint32_t count = 0; count <= 12; ++count) {
            const KRange round = first_round({begin, begin + count}, 5);
            EXPECT_EQ(round.begin, begin);
            EXPECT_EQ(round.size(), std::min(count, 5u));
        }
}

TEST(KRange, SharesAreNeighboursOfEqualSizeAndCoverAll) {
    for (uint32_t k_blocks : {0u, 1u, 2u, 3u, 16u, 56u, 127u, 4000000u})
        for (uint32_t splits = 1; splits <= 16; ++splits) {
            uint32_t end = 0;
            for (uint32_t rank = 0; rank < splits; ++rank) {
                const KRange k = k_range(k_blocks, splits, rank);
                EXPECT_EQ(k.begin, end);
                EXPECT_GE(k.size(), k_blocks / splits);
                EXPECT_LE(k.size(), k_blocks / splits + 1);
                end = k.end;
            }
            EXPECT_EQ(end, k_blocks);
        }
}

struct Problem {
    uint32_t m, n, k_blocks;
};
constexpr Problem kProblems[] = {{1, 8, 1},       {64, 4096, 7}, {700, 1000, 2},
                                 {2000, 264, 16}, {128, 128, 0}, {3, 2000, 9}};

/// All that a CTA works on, in order: (tile, k-block).
struct Step {
    Tile tile;
    uint32_t kb;
    bool operator==(const Step&) const = default;
};

template <GemmConfig C>
DenseScheduler scheduler_of(const Problem& p, uint32_t cta, uint32_t ctas) {
    return DenseScheduler::of<C>(raster(C, p.m, p.n), p.m, p.k_blocks, cta, ctas, cta % C.cluster);
}

template <GemmConfig C>
std::vector<Step> steps_of(DenseScheduler walk) {
    std::vector<Step> steps;
    for (Tile tile; walk.take<C>(tile);)
        for (uint32_t kb = walk.k.begin; kb < walk.k.end; ++kb) steps.push_back({tile, kb});
    return steps;
}

TEST(DenseScheduler, AllCtasTogetherDoEveryBlockOfEveryTileOnceForAnyGrid) {
    test::for_each_config([]<GemmConfig C>() {
        for (const Problem& p : kProblems)
            for (const uint32_t clusters : {1u, 2u, 3u, 16u, 66u, 132u, 1000u}) {
                std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> visits;
                for (uint32_t cta = 0; cta < clusters * C.cluster; ++cta)
                    for (const Step& s : steps_of<C>(scheduler_of<C>(p, cta, clusters * C.cluster)))
                        ++visits[{s.tile.row / C.tile_m, s.tile.col / segment_cols(C, 0), s.kb}];
                // Clusters may reach past the last tile, never by a whole cluster.
                const uint32_t down = ceil_div(ceil_div(p.m, C.tile_m), C.b_sharers()) * C.b_sharers();
                const uint32_t across = ceil_div(ceil_div(p.n, C.tile_n), C.a_sharers()) * C.a_sharers();
                ASSERT_EQ(visits.size(), static_cast<size_t>(down) * across * p.k_blocks);
                for (const auto& [at, count] : visits) {
                    ASSERT_EQ(count, 1);
                    ASSERT_LT(std::get<0>(at), down);
                    ASSERT_LT(std::get<1>(at), across);
                    ASSERT_LT(std::get<2>(at), p.k_blocks);
                }
            }
    });
}

TEST(Tile, HasASegmentForEachPowerOfTwoOfItsWidth) {
    const auto segments_of = [](uint32_t tile_n) {
        const GemmConfig c{.tile_n = tile_n};
        std::vector<uint32_t> widths;
        for (uint32_t i = 0; i < n_segments(c); ++i) widths.push_back(segment_cols(c, i));
        return widths;
    };
    using Widths = std::vector<uint32_t>;
    EXPECT_EQ(segments_of(64), Widths{64});
    EXPECT_EQ(segments_of(128), Widths{128});
    EXPECT_EQ(segments_of(96), (Widths{64, 32}));
    EXPECT_EQ(segments_of(256), (Widths{128, 128}));
    EXPECT_EQ(segments_of(112), (Widths{64, 32, 16}));
    EXPECT_EQ(segments_of(176), (Widths{128, 32, 16}));
    const GemmConfig c{.tile_n = 176};
    EXPECT_EQ(cols_before_segment(c, 0), 0u);
    EXPECT_EQ(cols_before_segment(c, 2), 160u);
    for (uint32_t col = 0; col < 176; ++col) EXPECT_EQ(segment_of(c, col), col < 128 ? 0u : col < 160 ? 1u : 2u);
    EXPECT_EQ(n_segments({.tile_n = 176, .b = kRowScaled}), 1u) << "each column has a scale of its own";
}

TEST(Tile, ColumnsOfSegmentsTogetherAreThoseOfDOnceAndEachSegmentHasOneScaleOfB) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        for (uint32_t n = 8; n <= 1400; n += 8) {
            const Raster order = raster_of_columns(c, n);
            std::vector<int> visits(n);
            for (uint32_t i = 0; i < order.tiles_n * cluster_tiles_n(c); ++i) {
                const uint32_t col = i * segment_cols(c, 0);
                for (uint32_t j = 0; j < c.tile_n; ++j) {
                    const uint32_t at = column_of(c, order, col, j);
                    if (at < n) ++visits[at];
                    if (c.row_b_scales()) continue;
                    const uint32_t first = segment_col(c, order, col, segment_of(c, j));
                    ASSERT_EQ(at / kScaleBlock, first / kScaleBlock) << n << ", column " << at;
                }
            }
            ASSERT_EQ(std::ranges::count(visits, 1), n) << n;
        }
    }
}

TEST(DenseScheduler, CtasOfAClusterHaveInCommonWhatTheyShare) {
    test::for_each_config([]<GemmConfig C>() {
        const Problem p{2000, 2000, 16};
        for (uint32_t first = 0; first < 6 * C.cluster; first += C.cluster) {
            DenseScheduler leader = scheduler_of<C>(p, first, 6 * C.cluster);
            std::vector<DenseScheduler> others;
            for (uint32_t rank = 1; rank < C.cluster; ++rank)
                others.push_back(scheduler_of<C>(p, first + rank, 6 * C.cluster));
            for (Tile tile; leader.take<C>(tile);)
                for (uint32_t rank = 1; rank < C.cluster; ++rank) {
                    Tile other;
                    ASSERT_TRUE(others[rank - 1].take<C>(other)) << "all walk equally far, or multicasts would wait";
                    Tile expected = tile;
                    if (C.a_sharers() > 1) expected.col += rank * segment_cols(C, 0);
                    if (C.b_sharers() > 1) expected.row += rank * C.tile_m;
                    expected.rows = existing_rows(expected.row, C.tile_m, p.m);
                    EXPECT_EQ(other, expected);
                }
            for (DenseScheduler& other : others) {
                Tile none;
                EXPECT_FALSE(other.take<C>(none));
            }
        }
    });
}

TEST(GroupedKScheduler, AllCtasTogetherDoEveryBlockOfEveryTileOfEveryGroupOnceForAnyGrid) {
    constexpr GemmConfig kConfig{.tile_m = 128, .tile_n = 192};
    const std::vector<int32_t> offsets = {128, 128, 1024, 1024, 1152, 1536};
    for (const auto& [m, n] : {std::pair{1u, 8u}, {700u, 1000u}, {5000u, 192u}})
        for (const uint32_t ctas : {1u, 2u, 3u, 132u, 1000u}) {
            const Raster order = raster(kConfig, m, n);
            const KGroupLayout groups{.offsets = offsets.data(), .groups = 5, .k_blocks = 12};
            std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> tiles;
            std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> blocks;
            for (uint32_t cta = 0; cta < ctas; ++cta) {
                GroupedKScheduler walk = GroupedKScheduler::of<kConfig>(order, groups, m, cta, ctas);
                for (Tile tile; walk.take<kConfig>(tile);) {
                    ++tiles[{tile.group, tile.row, tile.col}];
                    ASSERT_EQ(tile.rows, std::min(128u, m - tile.row));
                    ASSERT_LT(tile.col, n);
                    ASSERT_EQ(walk.k, groups.group(tile.group));
                    for (uint32_t kb = walk.k.begin; kb < walk.k.end; ++kb) ++blocks[{kb, tile.row, tile.col}];
                }
            }
            ASSERT_EQ(tiles.size(), order.size() * 5u) << "groups without k-blocks have tiles, too";
            ASSERT_EQ(blocks.size(), order.size() * 11u) << "block 0 is of no group";
            for (const auto& [at, count] : tiles) ASSERT_EQ(count, 1);
            for (const auto& [at, count] : blocks) ASSERT_EQ(count, 1);
        }
}

TEST(GroupedKScheduler, ATileAndItsBlocksHaveRoomInATile) {
    for (const Tile& tile : {Tile{.row = 0x7fffff00, .col = 0x7fffff80, .rows = 256, .group = 1023},
                             Tile{.row = 128, .col = 0, .rows = 1, .group = 0}})
        for (const uint32_t blocks : {1u, 0xffffffu}) {
            EXPECT_EQ(unpacked(packed(tile, blocks)), tile);
            EXPECT_EQ(packed(tile, blocks).group, blocks);
        }
    EXPECT_EQ(unpacked({}).rows, 0u) << "the end";
}

TEST(PieceScheduler, AllCtasTogetherDoEveryBlockOfEveryTileOnceForAnyGrid) {
    constexpr GemmConfig kConfig{.tile_m = 128, .tile_n = 192, .grouping = Grouping::Sum};
    for (const auto& [m, n, blocks] : {std::tuple{1u, 8u, 1u}, {128u, 384u, 258u}, {700u, 1000u, 13u}})
        for (const uint32_t ctas : {1u, 2u, 3u, 132u, 1000u}) {
            const Raster order = raster(kConfig, m, n);
            const uint32_t pieces = k_pieces(blocks, order.size(), ctas);
            EXPECT_TRUE(pieces == 1 || pieces * order.size() <= ctas) << "a piece has to wait";
            std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> visits;
            for (uint32_t cta = 0; cta < ctas; ++cta) {
                PieceScheduler walk{
                    .order = order, .pieces = pieces, .k_blocks = blocks, .next = cta, .stride = ctas, .m = m};
                for (Tile tile; walk.take<kConfig>(tile);) {
                    ASSERT_LT(tile.group, pieces);
                    ASSERT_EQ(tile.rows, std::min(128u, m - tile.row));
                    ASSERT_GT(walk.k.size(), 0u) << "no piece is empty";
                    ASSERT_LE(walk.k.size(), ceil_div(blocks, pieces));
                    for (uint32_t kb = walk.k.begin; kb < walk.k.end; ++kb) ++visits[{kb, tile.row, tile.col}];
                }
            }
            ASSERT_EQ(visits.size(), order.size() * blocks);
            for (const auto& [at, count] : visits) ASSERT_EQ(count, 1);
        }
}

TEST(PieceScheduler, HasAsManyPiecesWhateverTheTilesWhereTheirNumberMayNotCount) {
    EXPECT_EQ(k_pieces(258, 0, 132), kInvariantPieces);
    EXPECT_EQ(k_pieces(5, 0, 132), 5u);
    EXPECT_EQ(k_pieces(258, 3, 132), 44u);
    EXPECT_EQ(k_pieces(258, 200, 132), 1u);
}

/// Every element of D that a span has, by all ranks of all of its cluster tiles, once.
TEST(Segment, TilesHaveEveryRowOfItOnceAndNoOther) {
    for (const GemmConfig& c : test::kConfigs) {
        if (c.b_sharers() > 1 || c.k_splits() > 1) continue;
        for (const RowRange rows : {RowRange{0, 0}, {5, 6}, {3, 67}, {1000, 1129}, {64, 64 + 5 * kBandRows / 2}}) {
            const uint32_t n = 3 * c.tile_n + 8;
            const Raster columns = raster_of_columns(c, n);
            std::map<std::pair<uint32_t, uint32_t>, int> visits;
            for (uint32_t index = 0; index < span_tiles(c, columns, rows); ++index)
                for (uint32_t rank = 0; rank < c.cluster; ++rank) {
                    const Tile tile = span_tile(c, columns, rows, index, rank);
                    ASSERT_GE(tile.row, rows.begin);
                    ASSERT_GT(tile.rows, 0u);
                    ASSERT_LE(tile.row + tile.rows, rows.end);
                    if (tile.col < n)
                        for (uint32_t row = tile.row; row < tile.row + tile.rows; ++row) ++visits[{row, tile.col}];
                }
            ASSERT_EQ(visits.size(), static_cast<size_t>(rows.size()) * 4) << test::describe(c);
            for (const auto& [at, count] : visits) ASSERT_EQ(count, 1);
        }
    }
}

TEST(Raster, IsTheSameWhereverTheNumberOfRowsComesFrom) {
    const GemmConfig c{.tile_m = 128, .tile_n = 128};
    for (const uint32_t m : {1u, 2048u, 2049u, 5000u}) {
        const Raster host = raster(c, m, 1000), columns = raster_of_columns(c, 1000);
        for (uint32_t i = 0; i < host.size(); ++i) ASSERT_EQ(columns.at(i, host.tiles_m), host.at(i));
    }
}

TEST(ExistingRows, TilesOfAClusterPastTheEndHaveNone) {
    EXPECT_EQ(existing_rows(0, 128, 128), 128u);
    EXPECT_EQ(existing_rows(128, 128, 130), 2u);
    EXPECT_EQ(existing_rows(256, 128, 256), 0u);
    EXPECT_EQ(existing_rows(384, 128, 257), 0u) << "m - first_row would wrap";
}

TEST(ExistingRows, AllTilesOfAllClustersTogetherHaveEveryRowOnce) {
    for (const GemmConfig& c : test::kConfigs)
        for (uint32_t m : {1u, 63u, 64u, 129u, 257u, 385u, 2000u}) {
            const uint32_t tiles = raster(c, m, 8).tiles_m * cluster_tiles_m(c);
            uint32_t rows = 0;
            for (uint32_t t = 0; t < tiles; ++t) rows += existing_rows(t * c.tile_m, c.tile_m, m);
            EXPECT_EQ(rows, m) << test::describe(c);
        }
}

TEST(Grid, IsWholeClustersAndNoMoreThanThereAreTiles) {
    for (const GemmConfig& c : test::kConfigs)
        for (uint32_t tiles : {1u, 5u, 131u, 132u, 10000u})
            for (uint32_t resident : {1u, 66u, 132u, 264u}) {
                const uint32_t grid = grid_size(c, tiles, resident);
                EXPECT_EQ(grid % c.cluster, 0u);
                EXPECT_GE(grid, c.cluster);
                EXPECT_LE(grid, tiles * c.cluster);
                const bool one_tile_each = c.cluster_use == ClusterUse::SplitK || c.k_slices() > 1;
                EXPECT_EQ(grid, (one_tile_each ? tiles : std::min(tiles, resident)) * c.cluster);
            }
}

TEST(Schedule, FromBothEndsTakesEachTileOnceAndBothEndsFirst) {
    EXPECT_EQ(from_both_ends(0, 7), 0u);
    EXPECT_EQ(from_both_ends(1, 7), 6u);
    EXPECT_EQ(from_both_ends(2, 7), 1u);
    for (uint32_t count = 1; count < 70; ++count) {
        std::set<uint32_t> seen;
        for (uint32_t i = 0; i < count; ++i) seen.insert(from_both_ends(i, count));
        EXPECT_EQ(seen.size(), count);
        EXPECT_EQ(*seen.rbegin(), count - 1);
    }
}

/// If each group has as many rows as expected, the guess is right.
TEST(ExpectedGroups, GuessesTheTilesOfGroupsThatAreAsExpected) {
    for (const GemmConfig& c : test::kConfigs) {
        if (c.b_sharers() > 1 || c.k_splits() > 1) continue;
        for (const uint32_t rows : {1u, 64u, 129u, 700u, 5000u}) {
            const Raster columns = raster_of_columns(c, 1000);
            const auto expected = ExpectedGroups::of(c, columns, rows);
            const uint32_t each = span_tiles(c, columns, {0, rows});
            for (uint32_t index = 0; index < 3 * each; ++index)
                for (uint32_t rank = 0; rank < c.cluster; ++rank) {
                    const Tile guess = expected_tile(c, columns, expected, index, rank);
                    ASSERT_EQ(guess.group, index / each) << test::describe(c);
                    ASSERT_EQ(guess.col, span_tile(c, columns, {0, rows}, index % each, rank).col);
                }
        }
    }
}

TEST(ExpectedGroups, HaveATileWhateverIsExpected) {
    constexpr GemmConfig c{.tile_m = 64, .tile_n = 32, .stages = 4, .math_warpgroups = 1, .grouping = Grouping::Rows};
    for (const uint32_t rows : {0u, 0x7fffffffu})
        for (const uint32_t n : {8u, 1u << 25}) {  // 4096 times so many tiles are 2^32
            const auto expected = ExpectedGroups::of(c, raster_of_columns(c, n), rows);
            EXPECT_GE(expected.tiles_below, 1u);
            EXPECT_GE(expected.tiles.divisor, 1u);
        }
}

TEST(Vectors, HaveEachABlockOfTheirRangeSoThatTheWarpsThatOwnThemAlternate) {
    for (uint32_t blocks : {2u, 4u})
        for (uint32_t begin = 0; begin < 12; ++begin)
            for (uint32_t end = begin; end < 24; ++end) {
                uint32_t seen = 0;
                for (uint32_t kb = first_vector({begin, end}, blocks); kb < end; kb += blocks) {
                    const uint32_t of_range = min(kb + blocks, end) - max(kb, begin);
                    EXPECT_EQ(kb % blocks, 0u);
                    EXPECT_TRUE(of_range >= 1 && of_range <= blocks) << begin << " to " << end << ", " << kb;
                    seen += of_range;
                }
                EXPECT_EQ(seen, end - begin);
            }
}

}  // namespace
}  // namespace finegemm
