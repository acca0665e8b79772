// Which kernel a product before a norm takes, and how K is cut. Layer tests.
#include <algorithm>
#include <fstream>
#include <map>
#include <ranges>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "ops/prenorm/planner.h"
#include "support/random.h"

namespace finegemm {
namespace {

const plan::DeviceSpec kH200 = *plan::find_device("h200");

TEST(PrenormPlanner, RandomProblemsHaveAPlanThatKeepsTheRules) {
    test::Random random(1);
    for (int i = 0; i < 2000; ++i) {
        PrenormProblem p{random.one_in(4) ? random.any(1, INT32_MAX) : random.any(1, 9000), 8 * random.any(1, 4),
                         64 * random.any(1, random.one_in(2) ? 8 : 500), random.any(1, 20)};
        if (random.one_in(3)) p.num_sms = static_cast<int32_t>(random.any(1, 132));
        const PrenormPlan plan = plan_of(p, kH200);
        const PrenormConfig& c = plan.kernel.config;
        ASSERT_GE(c.cols, p.n);
        ASSERT_LE(plan.parts(), ceil_div(static_cast<uint32_t>(p.k / kPrenormBlock), c.blocks()));
        ASSERT_LE(plan.slices, p.slices);
        ASSERT_GE(plan.clusters, 1u);
        ASSERT_LE(plan.ctas(), p.num_sms > 0 ? static_cast<uint32_t>(p.num_sms) : kH200.sms);
        ASSERT_LE(plan.clusters, (static_cast<uint64_t>(p.m) + c.rows - 1) / c.rows * plan.slices);
        ASSERT_GT(plan.us, 0);
        const std::vector<PrenormPlan> all = prenorm_plans(p, kH200);
        ASSERT_EQ(all[0].kernel, plan.kernel);
        ASSERT_EQ(all[0].slices, plan.slices);
    }
}

TEST(PrenormPlanner, FewRowsAreSplitOverMostSmsThatOneLaunchCanUse) {
    for (const int64_t k : {7168, 7680, 28672}) {
        const PrenormPlan one = plan_of(PrenormProblem{13, 24, k, 1}, kH200),
                          many = plan_of(PrenormProblem{13, 24, k, 16}, kH200);
        EXPECT_EQ(one.kernel.cluster(), 8u) << k;
        EXPECT_GE(many.parts(), 16u) << k;
        EXPECT_LT(many.us, one.us) << k;
    }
}

TEST(PrenormPlanner, ManyRowsFillTheMachine) {
    for (const int64_t k : {7168, 7680, 28672})
        for (const int64_t m : {4096, 8192})
            for (const int64_t slices : {1, 16}) {
                const PrenormPlan plan = plan_of(PrenormProblem{m, 24, k, slices}, kH200);
                EXPECT_GE(plan.ctas(), 120u) << m << " " << k << " " << slices;
                EXPECT_LE(ceil_div(static_cast<uint32_t>(m), plan.kernel.config.rows) * plan.slices, plan.clusters)
                    << "several turns, of which the last is not full";
            }
}

TEST(PrenormPlanner, TakesClustersThatFitInABudget) {
    for (const int32_t num_sms : {1, 2, 3, 7, 8, 100}) {
        const PrenormPlan plan = plan_of(PrenormProblem{4096, 24, 7168, 1, num_sms}, kH200);
        EXPECT_LE(plan.ctas(), static_cast<uint32_t>(num_sms));
    }
    EXPECT_EQ(plan_of(PrenormProblem{13, 24, 7168, 16, 1}, kH200).kernel.cluster(), 1u);
}

/// All plans of the rows that are compared with others have been measured: "r64c2s1" has 64 rows, clusters of 2 and one
/// slice that is not zero.
TEST(PrenormPlanner, ChoosesWhatIsNearlyTheFastest) {
    const auto record =
        nlohmann::json::parse(std::ifstream(FINEGEMM_TEST_DIR "/../bench/results/prenorm_plans_h200.json"));
    double sum = 0;
    for (const auto& row : record["rows"]) {
        const auto shape = row["shape"].get<std::vector<int64_t>>();
        const auto times = row["us"].get<std::map<std::string, double>>();
        const PrenormPlan plan = plan_of(
            PrenormProblem{shape[0], shape[1], shape[2], std::max<int64_t>(row["splits"].get<int64_t>(), 1)}, kH200);
        const auto chosen =
            times.find(fmt::format("r{}c{}s{}", plan.kernel.config.rows, plan.kernel.cluster(), plan.slices));
        ASSERT_NE(chosen, times.end()) << row;
        const double us = chosen->second, best = std::ranges::min(std::views::values(times));
        EXPECT_LE(us, 1.03 * best) << row;
        sum += us / best - 1;
    }
    EXPECT_EQ(record["rows"].size(), 24u);
    EXPECT_LE(sum / 24, 0.01);
}

}  // namespace
}  // namespace finegemm
