// K-slices: how they share k-blocks, and where the sums of one wait for the other.
#include <gtest/gtest.h>

#include <set>

#include <finegemm/core/fragment.h>
#include <finegemm/gemm/k_slices.h>

#include "support/configs.h"

namespace finegemm {
namespace {

TEST(KSlices, ShareTheBlocksOfATile) {
    for (uint32_t k_slices = 1; k_slices <= 3; ++k_slices)
        for (uint32_t blocks = k_slices; blocks < 40; ++blocks) {
            std::set<uint32_t> seen;
            for (uint32_t k_slice = 0; k_slice < k_slices; ++k_slice)
                for (uint32_t i = 0; i < blocks_of_slice(blocks, k_slices, k_slice); ++i)
                    seen.insert(k_slice + i * k_slices);
            EXPECT_EQ(seen.size(), blocks);
            EXPECT_EQ(*seen.rbegin(), blocks - 1);
        }
}

TEST(KSlices, TheEarlierOneLacksTheLastBlock) {
    for (uint32_t blocks = 2; blocks < 40; ++blocks) {
        const uint32_t k_slice = earlier_slice(blocks);
        EXPECT_NE(k_slice + (blocks_of_slice(blocks, 2, k_slice) - 1) * 2, blocks - 1);
    }
}

TEST(KSlices, AreOfWarpgroupsThatHaveAllRowsOfATileTogether) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        std::set<std::pair<uint32_t, uint32_t>> seen;
        for (uint32_t w = 0; w < c.math_warpgroups; ++w) seen.insert({k_slice_of(c, w), row_part_of(c, w)});
        EXPECT_EQ(seen.size(), c.math_warpgroups);
        EXPECT_EQ(*seen.rbegin(), std::pair(c.k_slices() - 1, c.row_warpgroups() - 1));
        EXPECT_EQ(c.rows_per_warpgroup() * c.row_warpgroups(), c.tile_m);
    }
}

TEST(KSlices, TheirWarpgroupsHaveEachRowOfATileOnce) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        std::set<std::pair<uint32_t, uint32_t>> seen;  // slices, and where 64 rows begin
        for (uint32_t w = 0; w < c.math_warpgroups; ++w)
            for (uint32_t i = 0; i < c.wgmmas_m(); ++i) {
                EXPECT_EQ((first_row_of(c, w) + i * rows_apart(c)) % 64, 0u);
                EXPECT_LT(first_row_of(c, w) + i * rows_apart(c), c.tile_m);
                seen.insert({k_slice_of(c, w), first_row_of(c, w) + i * rows_apart(c)});
            }
        EXPECT_EQ(seen.size(), c.k_slices() * c.tile_m / 64);
    }
}

TEST(KSlices, TheirWarpgroupsShareTheRowsThatATileOfAGroupHas) {
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

TEST(KSlices, TheWarpsOfEachHaveTheStripsOfD) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        for (uint32_t k_slice = 0; k_slice < c.k_slices(); ++k_slice) {
            std::set<uint32_t> strips;
            for (uint32_t warp = 0; warp < 4 * c.math_warpgroups; ++warp)
                if (k_slice_of(c, warp / 4) == k_slice) strips.insert(strip_of(c, warp));
            EXPECT_EQ(strips.size(), 4 * c.row_warpgroups());
            EXPECT_EQ(*strips.rbegin(), 4 * c.row_warpgroups() - 1);
        }
    }
}

TEST(KSlices, HaveStagesOfTheirOwn) {
    for (const GemmConfig& c : test::kConfigs) EXPECT_EQ(c.stages % c.k_slices(), 0u) << test::describe(c);
}

TEST(KSlices, SumsOfASliceHaveRoomInItsStagesApartFromEachOther) {
    for (const GemmConfig& c : test::kConfigs) {
        if (c.k_slices() == 1) continue;
        SCOPED_TRACE(test::describe(c));
        std::set<std::pair<uint32_t, uint32_t>> seen;
        for (uint32_t thread = 0; thread < 128; ++thread)
            for (uint32_t reg = 0; reg < c.tile_n / 2; reg += 4) {
                const uint32_t stage = slice_sums_stage(c, reg), offset = slice_sums_offset(c, thread, reg);
                EXPECT_EQ(stage % c.k_slices(), 0u) << "another slice's";
                EXPECT_LT(stage, c.stages);
                EXPECT_EQ(offset % 16, 0u);
                EXPECT_LE(offset + 16, kernel_plan(c).smem.b_stage);
                EXPECT_TRUE(seen.insert({stage, offset}).second) << "of another thread or register";
            }
    }
}

}  // namespace
}  // namespace finegemm
