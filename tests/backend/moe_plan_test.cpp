// The plan of a layer of experts, and its memory. Layer tests.
#include <gtest/gtest.h>

#include "ops/moe/call.h"
#include "ops/moe/planner.h"

namespace finegemm::moe_plan_test {
namespace {

constexpr MoeShape kFew{.tokens = 16, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 256};
constexpr MoeShape kMany{.tokens = 16384, .choices = 8, .hidden = 7168, .intermediate = 2048, .experts = 32};

TEST(MoePlan, TakesTheFasterOfOneLaunchAndTwo) {
    const plan::DeviceSpec& h200 = *plan::find_device("h200");
    for (const MoeShape& shape : {kFew, kMany}) {
        const MoePlan plan = plan_of(shape, h200);
        EXPECT_EQ(plan.forms.fused, plan.fused_us <= plan.apart_us);
    }
    MoeShape other = kFew;
    other.fused = !plan_of(kFew, h200).forms.fused;
    EXPECT_GE(plan_of(other, h200).us(), plan_of(kFew, h200).us());
}

TEST(MoePlan, ExpectsTheClockToFallWhereProductsTakeMilliseconds) {
    const plan::DeviceSpec& h200 = *plan::find_device("h200");
    const auto product_over_alone = [&](const MoeShape& s) {
        const plan::Problem problem = plan::problem_of(down_shape(s, false));
        const double alone = plan::cost(problem, h200, plan::choose(problem, h200).config).total;
        const MoePlan plan = plan_of(s, h200);
        return plan.launches[plan.launches.size() - 2].us / alone;
    };
    EXPECT_LT(product_over_alone(kFew), 1.05) << "memory decides, whose clock does not change";
    EXPECT_GT(product_over_alone(kMany), 1.15);
    EXPECT_LT(product_over_alone(kMany), 1.24);
}

bool is_fused(int64_t tokens, int64_t choices, int64_t hidden, int64_t intermediate, int64_t experts) {
    MoeShape s;
    s.tokens = tokens, s.choices = choices, s.hidden = hidden, s.intermediate = intermediate, s.experts = experts;
    return is_fused_faster(s, *plan::find_device("h200"));
}

TEST(MoePlan, ActivatesApartWhereProductsOfLightExpertsTakeMilliseconds) {
    EXPECT_FALSE(is_fused(16384, 8, 3072, 1536, 256));
    EXPECT_FALSE(is_fused(16384, 8, 4096, 1536, 128));
    EXPECT_TRUE(is_fused(4096, 8, 4096, 1536, 128)) << "less than a millisecond";
    EXPECT_TRUE(is_fused(16384, 8, 5120, 1536, 160)) << "experts of 15.7 MB";
}

TEST(MoePlan, ActivatesInTheProductWhereItsTilesTakeTheRowsThatExpertsHaveByChance) {
    EXPECT_TRUE(is_fused(4096, 1, 7168, 2048, 8)) << "512 rows of an expert, 21 more or less: three tiles of 192";
    EXPECT_FALSE(is_fused(4096, 1, 3072, 1536, 8)) << "as many, but the activation awaits rows";
    EXPECT_FALSE(is_fused(4096, 1, 4096, 1536, 4)) << "1024 rows: six of them, for eight or nine of 128";
    EXPECT_FALSE(is_fused(4096, 1, 5120, 1536, 5)) << "819 rows: five of them, for seven of 128";
    EXPECT_TRUE(is_fused(4096, 8, 7168, 2048, 256)) << "128 rows: no more than one tile of half of the experts";
    EXPECT_TRUE(is_fused(4096, 8, 3072, 1536, 256)) << "as many";
    EXPECT_FALSE(is_fused(4096, 8, 5120, 1536, 160)) << "205 rows: a second tile of most experts";
}

TEST(MoePlan, ActivatesFewRowsInTheProductWhereOthersLoadMeanwhile) {
    EXPECT_TRUE(is_fused(1, 8, 4096, 1536, 128));
    EXPECT_FALSE(is_fused(8, 1, 5120, 1536, 5)) << "fewer tiles than SMs";
    EXPECT_FALSE(is_fused(4, 8, 5120, 1536, 160)) << "more tiles than are multiplied at once";
}

TEST(MoePlan, ActivatesBesideWeightsWhereAPassWouldTakeLonger) {
    EXPECT_TRUE(is_fused(512, 8, 7168, 2048, 256));
    EXPECT_FALSE(is_fused(64, 8, 7168, 2048, 256)) << "a pass over an eighth of the rows";
}

TEST(MoePlan, AddsUpApartWhereGroupsOfAnySizesWouldTakeLonger) {
    const MoeShape of_102_rows{.tokens = 512, .choices = 1, .hidden = 5120, .intermediate = 1536, .experts = 5};
    EXPECT_FALSE(is_storing_sums_faster(of_102_rows, *plan::find_device("h200")));
}

TEST(MoeMemory, HasThePartsOfALaunchApart) {
    const auto expect_apart = [](const MoeShape& s, bool fused) {
        const MoeMemory m = memory_of(s, fused);
        const int64_t rows = rows_of(s), words = 4 * m.scale_stride;
        const std::pair<int64_t, int64_t> all[] = {{m.inverse, 4 * s.tokens * s.choices},
                                                   {m.offsets, 4 * (s.experts + 1)},
                                                   {m.stored, !fused && awaits_rows(s) ? 4 * s.experts : 0},
                                                   {m.permutation, s.choices == 1 ? 4 * rows : 0},
                                                   {m.codes, rows * s.intermediate},
                                                   {m.code_scales, words * ((s.intermediate + 127) / 128)},
                                                   {m.rows, rows * s.hidden},
                                                   {m.row_scales, words * ((s.hidden + 127) / 128)},
                                                   {m.weights_of_rows, 4 * rows},
                                                   {m.between, fused ? 0 : 4 * rows * s.intermediate}};
        int64_t end = 0;
        for (const auto& [begin, bytes] : all) {
            EXPECT_GE(begin, end);
            EXPECT_EQ(begin % 256, 0);
            end = begin + bytes;
        }
        EXPECT_LE(end + 255, m.bytes) << "memory may begin at any address";
        EXPECT_GE(m.y, m.code_scales + words) << "the second product reads codes and scales";
        EXPECT_LE(m.y + 2 * rows * s.hidden + 255, m.bytes);
        EXPECT_GE(m.scale_stride, rows);
    };
    for (const bool fused : {true, false}) {
        expect_apart(kFew, fused);
        expect_apart({.tokens = 300, .choices = 1, .hidden = 144, .intermediate = 256, .experts = 3}, fused);
        expect_apart({.tokens = 3, .choices = 5, .hidden = 144, .intermediate = 1040, .experts = 1024}, fused);
        expect_apart({.tokens = 100, .choices = 8, .hidden = 256, .intermediate = 128, .experts = 4, .rows = 33},
                     fused);
    }
}

}  // namespace
}  // namespace finegemm::moe_plan_test
