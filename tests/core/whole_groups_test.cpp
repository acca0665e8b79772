// The tiles of groups that all have all rows: each comes once, in bands of groups or without. Layer tests.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include <finegemm/gemm/schedule.h>

namespace finegemm {
namespace {

TEST(WholeGroups, AllTilesOfAllGroupsComeOnceInBandsOrNot) {
    for (const GemmConfig& c : {GemmConfig{.tile_m = 64, .tile_n = 64}, GemmConfig{.tile_m = 128, .tile_n = 192},
                                GemmConfig{.tile_m = 128, .cluster = 2, .cluster_use = ClusterUse::ShareA}})
        for (const auto& [groups, rows, n, weights, band] : {std::tuple{128u, 300u, 512u, 131072u, 16u},
                                                             {40u, 64u, 8u, 1u, 10u},
                                                             {17u, 129u, 264u, 1u, 1u},
                                                             {6u, 700u, 1000u, 1u << 20, 3u},
                                                             {8u, 5000u, 1024u, 8u << 20, 1u}}) {
            const WholeGroups whole = WholeGroups::of(c, groups, rows, n, weights);
            EXPECT_EQ(whole.band, band) << groups << " groups";
            std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;
            uint32_t index = 0;
            for (; whole.tile(c, index, 0).group < groups; ++index)
                for (uint32_t rank = 0; rank < c.cluster; ++rank) {
                    const Tile tile = whole.tile(c, index, rank);
                    ASSERT_EQ(tile.rows, existing_rows(tile.row, c.tile_m, rows));
                    ASSERT_TRUE(seen.insert({tile.group, tile.row, tile.col}).second);
                }
            const Raster one = raster(c, rows, n);
            EXPECT_EQ(index, groups * one.size());
            EXPECT_EQ(seen.size(), index * c.cluster);
        }
}

}  // namespace
}  // namespace finegemm
