// What follows from the configuration of the kernel before a norm. Layer tests.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

#include <finegemm/prenorm/prenorm.h>

namespace finegemm {
namespace {

constexpr PrenormConfig kConfigs[] = {{64, 24}, {128, 24}, {64, 32}, {128, 32}};

TEST(Prenorm, StagesFitAndLieWhereTmaAndTensorCoresWantThem) {
    for (const PrenormConfig& c : kConfigs) {
        const PrenormSmemPlan p = prenorm_smem(c);
        EXPECT_LE(p.total, 232448u) << c.rows << "x" << c.cols;
        EXPECT_EQ(kPrenormChunk % c.blocks(), 0u);
        EXPECT_EQ(p.stage_bytes % 1024, 0u);
        EXPECT_EQ(p.b % 1024, 0u);
        EXPECT_EQ(p.parts % 1024, 0u);
        EXPECT_EQ(p.loaded % 8, 0u);
        // Bytes of A in flight on an SM: what hides the latency of memory is 32 KB and more.
        EXPECT_GE(p.stages * p.b, 96u << 10) << c.rows << "x" << c.cols;
        EXPECT_TRUE(legal(TmaBox{c.rows, kPrenormBlock, 2, Swizzle::B128, c.blocks()}));
        EXPECT_TRUE(legal(TmaBox{c.cols, 32, 4, Swizzle::B128, c.blocks() * 2}));
    }
}

TEST(Prenorm, PartsCoverKOnceAndDifferByAStageAtMost) {
    for (uint32_t stages = 1; stages < 200; ++stages)
        for (uint32_t parts = 1; parts <= stages; ++parts) {
            const PrenormParts p = PrenormParts::of(stages, parts);
            uint32_t next = 0;
            for (uint32_t i = 0; i < parts; ++i) {
                ASSERT_EQ(p.first(i), next);
                ASSERT_GE(p.count(i), 1u);
                ASSERT_LE(p.count(i), stages / parts + 1);
                next += p.count(i);
            }
            ASSERT_EQ(next, stages);
        }
}

/// B is split where it lies: a warp writes to the rows alone that it has read, all of them.
TEST(Prenorm, AWarpReplacesExactlyWhatItHasRead) {
    for (const uint32_t cols : {24u, 32u}) {
        std::set<uint32_t> all;
        for (uint32_t warp = 0; warp < cols / 4; ++warp) {
            std::set<uint32_t> read, written;
            for (uint32_t lane = 0; lane < 32; ++lane)
                for (uint32_t half = 0; half < 2; ++half) {
                    read.insert(prenorm_b_f32(cols, prenorm_piece(warp, lane), half));
                    written.insert(prenorm_b_bf16(cols, prenorm_piece(warp, lane), half));
                }
            EXPECT_EQ(read.size(), 64u);
            EXPECT_EQ(read, written);
            all.insert(read.begin(), read.end());
        }
        EXPECT_EQ(all.size(), cols * 16);
        EXPECT_EQ(*all.rbegin(), cols * 256 - 16);
    }
}

/// Each eight lanes, whose 128 bytes go at once, use all banks.
TEST(Prenorm, LanesThatLoadOrStoreTogetherUseAllBanks) {
    const auto all_banks = [](const auto& place_of_lane) {
        for (uint32_t first = 0; first < 32; first += 8) {
            std::set<uint32_t> places;
            for (uint32_t lane = first; lane < first + 8; ++lane) places.insert(place_of_lane(lane) % 128 / 16);
            if (places.size() != 8) return false;
        }
        return true;
    };
    for (const uint32_t cols : {24u, 32u})
        for (uint32_t warp = 0; warp < cols / 4; ++warp)
            for (uint32_t half = 0; half < 2; ++half) {
                EXPECT_TRUE(all_banks([&](uint32_t i) { return prenorm_b_f32(cols, prenorm_piece(warp, i), half); }));
                EXPECT_TRUE(all_banks([&](uint32_t i) { return prenorm_b_bf16(cols, prenorm_piece(warp, i), half); }));
            }
    for (const PrenormConfig& c : kConfigs)
        EXPECT_TRUE(all_banks([&](uint32_t row) { return row * prenorm_pitch(c) * 4; })) << "rows of parts";
}

TEST(Prenorm, KernelsHaveSlotsOfTheirOwn) {
    std::set<uint32_t> slots;
    for (const PrenormConfig& c : kConfigs)
        for (uint32_t log2 = 0; log2 <= kPrenormMostClusterLog2; ++log2) slots.insert(PrenormKernel{c, log2}.index());
    EXPECT_EQ(slots.size(), PrenormKernel::kCount);
    EXPECT_EQ(*slots.rbegin(), PrenormKernel::kCount - 1);
}

TEST(Prenorm, EachRowOfATileHasOneOwner) {
    for (uint32_t log2 = 0; log2 <= kPrenormMostClusterLog2; ++log2) {
        PrenormParams p{};
        p.cluster_log2 = log2;
        for (uint32_t row = 0; row < 64; ++row) {
            EXPECT_LT(p.owner(row), p.cluster());
            EXPECT_LT(row - p.owner(row) * p.share(), p.share());
        }
    }
}

}  // namespace
}  // namespace finegemm
