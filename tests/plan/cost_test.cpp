// What the planner expects a kernel to take.
#include <gtest/gtest.h>

#include "plan/plan.h"

namespace finegemm::plan {
namespace {

const DeviceSpec& h200() { return *find_device("h200"); }

TEST(Cost, GrowsWithTheProblemAndShrinksWithTheDevice) {
    DeviceSpec half = h200();
    half.sms = 66;
    for (const GemmConfig& c : candidates()) {
        const Problem p{4096, 4096, 4096};
        EXPECT_LT(cost(p, h200(), c).total, cost({8192, 4096, 4096}, h200(), c).total) << name_of(c);
        EXPECT_LT(cost(p, h200(), c).total, cost({4096, 4096, 8192}, h200(), c).total) << name_of(c);
        EXPECT_LT(cost(p, h200(), c).total, cost(p, half, c).total) << name_of(c);
    }
}

TEST(Cost, IsNeverBelowTheMemoryTime) {
    for (const GemmConfig& c : candidates()) {
        const Cost t = cost({1, 7168, 16384}, h200(), c);
        EXPECT_GE(t.total, t.memory);
        EXPECT_NEAR(t.memory, (1.0 * 16384 + 7168.0 * 16384 + 2 * 7168) / 4.2e6, 1e-9);
    }
    const GemmConfig f32 = config_named("m128n128s4w2_1d1d_f32");
    Problem gradient{.m = 1, .n = 7168, .k = 16384, .b = kRowScaled, .d = {DType::F32}};
    EXPECT_NEAR(cost(gradient, h200(), f32).memory, (1.0 * 16384 + 7168.0 * 16384 + 4 * 7168) / 4.2e6, 1e-9);
    gradient.d.accumulate = true;
    EXPECT_NEAR(cost(gradient, h200(), f32).memory, (1.0 * 16384 + 7168.0 * 16384 + 8 * 7168) / 4.2e6, 1e-9);
}

TEST(Cost, OfAddingInL2IsMoreThanOfMemory) {
    Problem gradient{.m = 32768, .n = 4096, .k = 512, .b = kRowScaled, .d = {DType::F32, true}};
    const auto of = [&](const char* kernel) { return cost(gradient, h200(), config_named(kernel)); };
    const double adding = of("m128n128s5w2_1d1d_f32").memory;
    EXPECT_NEAR(adding, 4.0 * 32768 * 4096 / 1.23e6, 0.02 * adding) << "A and B are little";
    const double on_h100 = cost(gradient, *find_device("h100"), config_named("m128n128s5w2_1d1d_f32")).memory;
    EXPECT_NEAR(on_h100, adding * 1.23 / 0.96, 0.01 * adding) << "its L2 adds less";
    const Cost loaded = of("m128n128s4w2_1d1d_f32");
    EXPECT_LT(loaded.memory, adding * 0.65);
    gradient.d.accumulate = false;
    EXPECT_NEAR(of("m128n128s5w2_1d1d_f32").memory, adding * 1.23 / 4.2, 0.05 * adding) << "D is written, and no more";
    EXPECT_LT(of("m128n128s4w2_1d1d_f32").compute, loaded.compute) << "no source is loaded";
}

TEST(Cost, GrowsWhereRowsBeginBetweenSectorsOfL2) {
    const auto compute = [](const GemmConfig& c, uint32_t k) { return cost({2560, 2304, k}, h200(), c).compute; };
    const uint32_t halves = 3776, lines = 3840, sectors = 3808, none = 3792;  // that rows begin on; all: 30 k-blocks
    for (const GemmConfig& c : candidates()) {
        EXPECT_EQ(compute(c, halves), compute(c, lines)) << name_of(c);
        EXPECT_GE(compute(c, sectors), compute(c, lines)) << name_of(c);
        EXPECT_GE(compute(c, none), compute(c, sectors)) << name_of(c);
    }
    const auto growth = [&](const char* kernel, uint32_t k) {
        return compute(config_named(kernel), k) / compute(config_named(kernel), lines);
    };
    EXPECT_GT(growth("m128n128s6w2", sectors), 1.05);
    EXPECT_GT(growth("m128n128s6w2", none), 1.5);
    EXPECT_LT(growth("m256n128s4w2", none), 1.3) << "fewer bytes for each product";
    EXPECT_EQ(growth("m256n128s4w2_shareA2", none), 1) << "each CTA loads half of the rows of A";
}

TEST(Cost, OfGroupsIsOfTheTilesThatAllTheirRowsMakeWhereTheseAreKnown) {
    const auto cost_of = [](uint32_t groups, uint32_t m, uint32_t expected_m) {
        const Problem p{.m = m, .n = 4096, .k = 4096, .groups = {Grouping::Rows, groups, expected_m}};
        return cost(p, h200(), config_named("m128n128s6w2_grouped"));
    };
    EXPECT_EQ(cost_of(1, 1000, 0).tiles, 8u * 32) << "one group has them all";
    EXPECT_EQ(cost_of(1, 2000, 1000).tiles, 270u) << "it may have 700 to 1300, which make 6 to 11";
    // 1024 tiles take eight waves of 132, and so do 1056; the next row of tiles begins a ninth.
    EXPECT_EQ(cost_of(1, 32 * 128, 0).compute, cost_of(1, 33 * 128, 0).compute);
    EXPECT_LT(cost_of(1, 33 * 128, 0).compute, cost_of(1, 34 * 128, 0).compute);
    // Four of the seven numbers that one group may make take two waves, three of them three.
    const double two = cost_of(1, 1000, 0).compute, three = cost_of(1, 1100, 0).compute;
    EXPECT_NEAR(cost_of(1, 2000, 1000).compute, (4 * two + 3 * three) / 7, 0.03 * two);
    EXPECT_LT(cost_of(4, 8192, 0).compute, cost_of(4, 8193, 2048).compute) << "no more than 8192, for four groups";
}

TEST(Cost, OfGroupsThatHaveAllRowsIsOfWholeTiles) {
    const auto cost_of = [](uint32_t m) {
        const Problem p{.m = m, .n = 4096, .k = 4096, .groups = {Grouping::Rows, 128, 128}};
        return cost(p, h200(), config_named("m128n128s6w2_grouped"));
    };
    EXPECT_EQ(cost_of(128 * 128).tiles, 128u * 32) << "128 rows are expected, and there are no more";
    EXPECT_GT(cost_of(128 * 256).tiles, 128u * 32);
}

TEST(Cost, OfGroupsLeavesOutThePaddingBehindThem) {
    const auto cost_of = [](Groups groups, uint32_t m) {
        groups.kind = Grouping::Rows;
        return cost({.m = m, .n = 4096, .k = 4096, .groups = groups}, h200(), config_named("m128n128s6w2_grouped"))
            .total;
    };
    const double exact = cost_of({.count = 64}, 64 * 129 / 2);
    EXPECT_EQ(cost_of({.count = 64, .alignment = 128}, 64 * 128), exact) << "of 1 to 128 rows 64.5 in the mean";
    EXPECT_LT(exact, cost_of({.count = 64}, 64 * 128));
    EXPECT_EQ(cost_of({.count = 64, .alignment = 128}, 2 * 128), cost_of({.count = 2}, 129)) << "others have no rows";
    EXPECT_EQ(cost_of({.count = 64, .expected_m = 9, .alignment = 128}, 8192),
              cost_of({.count = 64, .expected_m = 9}, 1));
}

TEST(CtasAtOnce, NearlyFillTheDeviceInWholeClusters) {
    for (const GemmConfig& c : candidates()) {
        const uint32_t ctas = ctas_at_once({64, 576, 7168}, h200(), c), slots = 132 * c.ctas_per_sm;
        EXPECT_EQ(ctas % c.cluster, 0u) << name_of(c);
        EXPECT_LE(ctas, slots) << name_of(c);
        EXPECT_GE(ctas, slots * 88 / 100) << name_of(c) << ": clusters of this size must be counted";
    }
}

}  // namespace
}  // namespace finegemm::plan
