// Teams: how they share k-blocks, and where the sums of one wait for the other.
#include <gtest/gtest.h>

#include <set>

#include <finegemm/core/fragment.h>
#include <finegemm/core/teams.h>

#include "support/configs.h"

namespace finegemm {
namespace {

TEST(Teams, ShareTheBlocksOfATile) {
    for (uint32_t teams = 1; teams <= 3; ++teams)
        for (uint32_t blocks = teams; blocks < 40; ++blocks) {
            std::set<uint32_t> seen;
            for (uint32_t team = 0; team < teams; ++team)
                for (uint32_t i = 0; i < blocks_of_team(blocks, teams, team); ++i) seen.insert(team + i * teams);
            EXPECT_EQ(seen.size(), blocks);
            EXPECT_EQ(*seen.rbegin(), blocks - 1);
        }
}

TEST(Teams, TheEarlierOneLacksTheLastBlock) {
    for (uint32_t blocks = 2; blocks < 40; ++blocks) {
        const uint32_t team = earlier_team(blocks);
        EXPECT_NE(team + (blocks_of_team(blocks, 2, team) - 1) * 2, blocks - 1);
    }
}

TEST(Teams, AreOfWarpgroupsThatHaveAllRowsOfATileTogether) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        std::set<std::pair<uint32_t, uint32_t>> seen;
        for (uint32_t w = 0; w < c.math_warpgroups; ++w) seen.insert({team_of(c, w), row_part_of(c, w)});
        EXPECT_EQ(seen.size(), c.math_warpgroups);
        EXPECT_EQ(*seen.rbegin(), std::pair(c.teams() - 1, c.row_warpgroups() - 1));
        EXPECT_EQ(c.rows_per_warpgroup() * c.row_warpgroups(), c.tile_m);
    }
}

TEST(Teams, TheirWarpgroupsHaveEachRowOfATileOnce) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        std::set<std::pair<uint32_t, uint32_t>> seen;  // teams, and where 64 rows begin
        for (uint32_t w = 0; w < c.math_warpgroups; ++w)
            for (uint32_t i = 0; i < c.wgmmas_m(); ++i) {
                EXPECT_EQ((first_row_of(c, w) + i * rows_apart(c)) % 64, 0u);
                EXPECT_LT(first_row_of(c, w) + i * rows_apart(c), c.tile_m);
                seen.insert({team_of(c, w), first_row_of(c, w) + i * rows_apart(c)});
            }
        EXPECT_EQ(seen.size(), c.teams() * c.tile_m / 64);
    }
}

TEST(Teams, TheirWarpgroupsShareTheRowsThatATileOfAGroupHas) {
    for (const GemmConfig& c : test::kConfigs) {
        if (!c.row_groups()) continue;
        SCOPED_TRACE(test::describe(c));
        for (uint32_t rows = 64; rows <= c.tile_m; rows += 64) {
            std::set<uint32_t> counts;
            for (uint32_t w = 0; w < c.math_warpgroups; ++w) {
                uint32_t count = 0;
                for (uint32_t i = 0; i < c.wgmmas_m(); ++i) count += first_row_of(c, w) + i * rows_apart(c) < rows;
                counts.insert(count);
            }
            EXPECT_LE(*counts.rbegin() - *counts.begin(), 1u) << rows;
        }
    }
}

TEST(Teams, TheWarpsOfEachHaveTheSlabsOfD) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        for (uint32_t team = 0; team < c.teams(); ++team) {
            std::set<uint32_t> slabs;
            for (uint32_t warp = 0; warp < 4 * c.math_warpgroups; ++warp)
                if (team_of(c, warp / 4) == team) slabs.insert(slab_of(c, warp));
            EXPECT_EQ(slabs.size(), 4 * c.row_warpgroups());
            EXPECT_EQ(*slabs.rbegin(), 4 * c.row_warpgroups() - 1);
        }
    }
}

TEST(Teams, HaveStagesOfTheirOwn) {
    for (const GemmConfig& c : test::kConfigs) EXPECT_EQ(c.stages % c.teams(), 0u) << test::describe(c);
}

TEST(Teams, SumsOfATeamHaveRoomInItsStagesApartFromEachOther) {
    for (const GemmConfig& c : test::kConfigs) {
        if (c.teams() == 1) continue;
        SCOPED_TRACE(test::describe(c));
        std::set<std::pair<uint32_t, uint32_t>> seen;
        for (uint32_t thread = 0; thread < 128; ++thread)
            for (uint32_t reg = 0; reg < c.tile_n / 2; reg += 4) {
                const uint32_t stage = team_sums_stage(c, reg), offset = team_sums_offset(c, thread, reg);
                EXPECT_EQ(stage % c.teams(), 0u) << "another team's";
                EXPECT_LT(stage, c.stages);
                EXPECT_EQ(offset % 16, 0u);
                EXPECT_LE(offset + 16, smem_plan(c).b_stage);
                EXPECT_TRUE(seen.insert({stage, offset}).second) << "of another thread or register";
            }
    }
}

}  // namespace
}  // namespace finegemm
