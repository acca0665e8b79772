// Accounts of the kernel that gemm takes: which product is asked about. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <finegemm/gemm.h>

#include "plan/plan.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

nlohmann::json account_of(const GemmShape& shape) { return nlohmann::json::parse(explain(shape, "h200")); }

TEST(ExplainGemm, IsOfTheKernelsForTheScalesAndTheTypeOfD) {
    const GemmShape row_scales{.m = 2112, .n = 4096, .k = 7184, .row_b_scales = true};
    GemmShape gradient = row_scales;
    gradient.out_dtype = DType::F32;
    for (const auto& [shape, kind] : {std::pair{row_scales, plan::Kind{.b = kRowScaled}},
                                      {gradient, plan::Kind{.b = kRowScaled, .output = Output::F32}}}) {
        const nlohmann::json account = account_of(shape);
        const plan::Problem problem{
            .m = 2112, .n = 4096, .k = 7184, .b = kind.b, .d = {kind.output == Output::F32 ? DType::F32 : DType::BF16}};
        EXPECT_EQ(account["chosen"]["name"], plan::name_of(plan::choose(problem, *plan::find_device("h200")).config));
        EXPECT_EQ(account["candidates"].size(), plan::candidates(kind).size());
        for (const auto& row : account["candidates"])
            EXPECT_EQ(plan::kind_of(plan::config_named(row["name"].get<std::string>())), kind) << row["name"];
    }
}

TEST(ExplainGemm, WithoutMoreThanExtentsIsOfScalesOfBlocksAndBf16) {
    EXPECT_EQ(explain(GemmShape{.m = 64, .n = 2112, .k = 7168}, "h200"), explain(64, 2112, 7168, "h200"));
}

TEST(ExplainGemm, KnowsBatchInvariantResultsOfEitherKindOfScales) {
    for (const bool row_b_scales : {false, true}) {
        GemmShape shape{.m = 256, .n = 4096, .k = 7168, .row_b_scales = row_b_scales, .batch_invariant = true};
        const std::string invariant = account_of(shape).dump();
        EXPECT_NE(invariant.find("results shall be batch-invariant"), std::string::npos) << row_b_scales;
        shape.batch_invariant = false;
        EXPECT_EQ(account_of(shape).dump().find("batch-invariant"), std::string::npos) << row_b_scales;
    }
}

TEST(Explain, OfASmBudgetIsOfTheKernelThatTakesItOfEachKindOfProduct) {
    const auto budgeted = [](auto shape) {
        const auto parsed = [&] { return nlohmann::json::parse(explain(shape, "h200")); };
        const nlohmann::json all = parsed();
        shape.num_sms = 20;
        const nlohmann::json some = parsed();
        EXPECT_FALSE(all["problem"].contains("num_sms"));
        EXPECT_EQ(some["problem"]["num_sms"], 20);
        EXPECT_GT(some["chosen"]["us"], all["chosen"]["us"]) << "fewer SMs take longer";
        shape.num_sms = -1;
        EXPECT_STREQ(error_of([&] { explain(shape, "h200"); }).what(),
                     "num_sms: is -1, must not be negative; 0 allows all SMs of the GPU");
    };
    budgeted(GemmShape{.m = 2048, .n = 4096, .k = 7168});
    budgeted(GemmShape{.m = 8192, .n = 4096, .k = 7168, .groups = 8});
    budgeted(GemmShape{.m = 2048, .n = 4096, .k = 8192, .k_groups = 4});
}

TEST(Explain, KnowsWhetherDIsAddedToOrOverwritten) {
    const auto both = [](auto shape) {
        const auto chosen = [&] { return nlohmann::json::parse(explain(shape, "h200"))["chosen"]["name"]; };
        const nlohmann::json overwriting = chosen();
        shape.accumulate = true;
        return std::pair(overwriting, chosen());
    };
    const GemmShape gradient{.m = 8192, .n = 4096, .k = 640, .row_b_scales = true, .out_dtype = DType::F32};
    EXPECT_EQ(both(gradient),
              (std::pair<nlohmann::json, nlohmann::json>("m128n128s5w2_1d1d_f32", "m128n128s4w2_1d1d_f32")));
    const GemmShape of_k{.m = 4096, .n = 7168, .k = 8 * 512, .k_groups = 8};
    EXPECT_EQ(both(of_k), (std::pair<nlohmann::json, nlohmann::json>("m128n128s5w2_1d1d_f32_kgrouped",
                                                                     "m128n128s4w2_1d1d_f32_kgrouped")));
}

TEST(ExplainKGrouped, KnowsBatchInvariantResults) {
    const GemmShape shape{.m = 4096, .n = 7168, .k = 8 * 4096, .k_groups = 8, .batch_invariant = true};
    EXPECT_NE(explain(shape, "h200").find("results shall be batch-invariant"), std::string::npos);
}

TEST(ExplainGemm, RefusesATypeOfDThatGemmDoesNotWrite) {
    const auto message = [](const GemmShape& shape) {
        return std::string(error_of([&] { account_of(shape); }).what());
    };
    EXPECT_EQ(message({.m = 1, .n = 8, .k = 16, .row_b_scales = true, .out_dtype = DType::E4M3}),
              "out_dtype: is e4m3, must be bf16, f16 or f32; pass one of them");
    EXPECT_EQ(message({.m = 1, .n = 8, .k = 16, .dtype = DType::E5M2}),
              "dtype: is multiplied in e5m2 by e5m2, of which there is no kernel for one product, with D of bf16; "
              "docs/scales.md has those that there are");
    EXPECT_EQ(
        message({.m = 1, .n = 8, .k = 16, .dtype_of_b = DType::E5M2, .row_b_scales = true, .groups = 2}),
        "dtype: is multiplied in e4m3 by e5m2, of which there is no kernel for groups of rows and scales for each "
        "row of B, with D of bf16; docs/scales.md has those that there are");
    EXPECT_EQ(message({.m = 1, .n = 8, .k = 16, .row_b_scales = true, .accumulate = true}),
              "accumulate: is set, but d is of bf16, must be of f32; set out_dtype and row_b_scales, or leave it out");
}

}  // namespace
}  // namespace finegemm::test
