// run and bench of an indexer's scores. Layer tests.
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "cli/bench/indexer/scores.h"
#include "cli/support.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(ScoresShape, IsReadFromTheLineOfALog) {
    const MqaShape rows = cli::parse_scores("mqa_logits 2048x8192 32x64 bf16 compressed abs");
    EXPECT_FALSE(rows.paged);
    EXPECT_EQ(std::tuple(rows.rows(), rows.keys, rows.heads, rows.dim), std::tuple(2048, 8192, 32, 64));
    EXPECT_TRUE(rows.dtype == DType::BF16 && rows.form == LogitsForm::Compressed && rows.relu == Relu::Abs);
    const MqaShape pages = cli::parse_scores("paged_mqa_logits 256x2x8192 64x128 page16 f32 untouched exact");
    EXPECT_TRUE(pages.paged);
    EXPECT_EQ(std::tuple(pages.requests, pages.queries, pages.keys, pages.page_size), std::tuple(256, 2, 8192, 16));
    EXPECT_TRUE(pages.dtype == DType::F32 && pages.form == LogitsForm::Untouched && pages.relu == Relu::Exact);
}

TEST(ScoresShape, OfAnotherTextIsRefused) {
    for (const char* line : {"mqa_logits 8", "mqa_logits 8x8x8 8x32", "mqa_logits 8x8 8", "mqa_logits 0x8 8x32",
                             "mqa_logits 8x8 8x32 f16", "mqa_logits 8x8 8x32 page16", "paged_mqa_logits 8x8 8x32",
                             "paged_mqa_logits 1x1x8 8x32 page", "mqa_logits 9x8 8x32"}) {
        const Error e = error_of([&] { cli::parse_scores(line); });
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(e, std::string("shape '") + line + "': ")) << e.what();
    }
    EXPECT_FALSE(cli::is_scores("gemm 1x8x16"));
    EXPECT_FALSE(cli::is_scores("mqa_logits"));
}

TEST(RunScores, AreRight) {
    for (const char* line :
         {"mqa_logits 20x90 8x32", "mqa_logits 20x300 32x64 bf16 abs", "mqa_logits 3x70 64x128 compressed abs",
          "paged_mqa_logits 3x2x100 16x32 page4", "paged_mqa_logits 2x5x70 64x64 page32 bf16 untouched abs"}) {
        const Ran ran = finegemm("run '" + std::string(line) + "' --device cpu --repeats 1 --json");
        ASSERT_EQ(ran.code, 0) << line << '\n' << ran.err << ran.out;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("line"), line);
        EXPECT_TRUE(out.at("right").get<bool>()) << line;
        EXPECT_GT(out.at("check").at("rows").get<int64_t>(), 0);
        EXPECT_GT(out.at("check").at("of_bound").get<double>(), 1e-6) << "nothing is exact in FP8";
    }
}

/// Operations and bytes of 2 queries with 8 heads that see 3 and 4 of 4 keys.
TEST(RunScores, HaveTheFiguresOfTheirWork) {
    const json out = json::parse(finegemm("run 'mqa_logits 2x4 8x32 bf16 untouched' --device cpu --json").out);
    const double us = out.at("us").get<double>();
    EXPECT_NEAR(out.at("tflop_per_s").get<double>() * us * 1e6, 7 * 2 * 8 * 32, 1e-3);
    EXPECT_NEAR(out.at("gb_per_s").get<double>() * us * 1e3, 2 * 8 * (32 + 4) + 4 * (32 + 4) + 7 * 2, 1e-3);
}

TEST(RunScores, SayWhatTheyAre) {
    const Ran ran = finegemm("run 'mqa_logits 20x90 8x32' --repeats 2");
    ASSERT_EQ(ran.code, 0) << ran.err;
    for (const char* part : {"device   cpu\n         ", "call     mqa_logits 20x90 8x32\n", " (median of 2), ",
                             "check    8 rows against double sums\n", "result   right: "})
        EXPECT_NE(ran.out.find(part), std::string::npos) << part << '\n' << ran.out;
}

TEST(RunScores, TakeNothingOfProducts) {
    const std::pair<const char*, const char*> cases[] = {
        {"run 'mqa_logits 2x8 8x32' --config x", "--config: is for gemm and its kind"},
        {"run 'mqa_logits 2x8 8x32' --groups 4", "--groups 4 --form offsets: is for gemm"},
        {"run 'mqa_logits 2x8 12x32' --device cpu", "q: has H = 12 heads, must be 8, 16, 32 or 64"},
        {"bench --device cpu --shapes 'mqa_logits 2x8 8x32,8x16x16'", "'8x16x16' is one of gemm"}};
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(arguments);
        EXPECT_EQ(ran.code, 2) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << arguments << '\n' << ran.err;
    }
}

TEST(ExplainScores, NameTheKernelAndSayWhy) {
    const std::pair<const char*, std::vector<const char*>> cases[] = {
        {"mqa_logits 64x100 64x128",
         {": FineGEMM_mqa_logits_h64_d128\n", "keys are in rows, H is 64 and D 128",
          "relu is exact, as nothing else is asked for", "2 queries of 64 heads"}},
        {"mqa_logits 64x100 32x32 abs",
         {": FineGEMM_mqa_logits_h32_d32_abs\n", "relu is abs, as asked for", "136 columns"}},
        {"paged_mqa_logits 3x4x100 64x64 page16",
         {": FineGEMM_paged_mqa_logits_h64_d64\n", "4 queries of a request take 2 products"}},
        {"mqa_logits 64x100 8x32 abs", {": FineGEMM_mqa_logits_h8_d32\n", "take longer than they save with 8 heads"}}};
    for (const auto& [line, parts] : cases) {
        const Ran ran = finegemm("explain '" + std::string(line) + "'");
        ASSERT_EQ(ran.code, 0) << ran.err;
        for (const char* part : parts) EXPECT_NE(ran.out.find(part), std::string::npos) << part << '\n' << ran.out;
        const json out = json::parse(finegemm("explain '" + std::string(line) + "' --json").out);
        EXPECT_NE(ran.out.find(out.at("kernel").get<std::string>()), std::string::npos);
    }
    for (const auto& [line, message] : {std::pair("mqa_logits 4x8 7x32", "q: has H = 7 heads"),
                                        {"paged_mqa_logits 1x9x8 8x32", "q: has 9 queries for a request"},
                                        {"paged_mqa_logits 1x1x8 8x32 page8", "cache: has pages of 288 bytes"},
                                        {"paged_mqa_logits 1x1x8 8x32 compressed", "form: is compressed"}}) {
        const Ran ran = finegemm("explain '" + std::string(line) + "'");
        EXPECT_EQ(ran.code, 2) << line;
        EXPECT_NE(ran.err.find(message), std::string::npos) << ran.err;
    }
}

TEST(BenchScores, HaveALineEach) {
    const std::string shapes =
        "bench --device cpu --repeats 1 --shapes 'mqa_logits 2x8 8x32,paged_mqa_logits 2x1x40 "
        "32x64'";
    const Ran ran = finegemm(shapes);
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(ran.out.starts_with("cpu: median of 1\n")) << ran.out;
    for (const char* line : {"  mqa_logits 2x8 8x32\n", "  paged_mqa_logits 2x1x40 32x64\n"})
        EXPECT_NE(ran.out.find(line), std::string::npos) << ran.out;
    const json record = json::parse(finegemm(shapes + " --json").out);
    EXPECT_EQ(record.at("rows").size(), 2u);
    EXPECT_EQ(record.at("rows")[1].at("line"), "paged_mqa_logits 2x1x40 32x64");
}

}  // namespace
}  // namespace finegemm::test
