// run and bench of the product before a norm. Layer tests.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/bench/prenorm.h"
#include "cli/support.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(PrenormShape, IsReadFromTheLineOfALog) {
    const auto read = [](const char* line) {
        const PrenormShape s = cli::parse_prenorm(line);
        return std::tuple(s.m, s.n, s.k, s.slices);
    };
    EXPECT_EQ(read("prenorm_gemm 4096x24x7168 slices=16"), std::tuple(4096, 24, 7168, 16));
    EXPECT_EQ(read("prenorm_gemm 1x8x64"), std::tuple(1, 8, 64, 1));
}

TEST(PrenormShape, OfAnotherTextIsRefused) {
    for (const char* line :
         {"prenorm_gemm 8x24", "prenorm_gemm 8x24x64x1", "prenorm_gemm 0x24x64", "prenorm_gemm 8x24x64 16",
          "prenorm_gemm 8x24x64 slices=", "prenorm_gemm 8x24x64 slices=0", "prenorm_gemm 8x24x64 slices=2 f32",
          "prenorm_gemm 8x24x60", "prenorm_gemm 8x12x64", "prenorm_gemm 8x24x64 slices=1025"}) {
        const Error e = error_of([&] { cli::parse_prenorm(line); });
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(e, std::string("shape '") + line + "': ")) << e.what();
    }
    EXPECT_FALSE(cli::is_prenorm("prenorm_gemm"));
}

TEST(RunPrenorm, IsRight) {
    for (const char* line : {"prenorm_gemm 13x24x640 slices=5", "prenorm_gemm 1x8x64", "prenorm_gemm 70x32x1280"}) {
        const Ran ran = finegemm("run '" + std::string(line) + "' --device cpu --repeats 1 --json");
        ASSERT_EQ(ran.code, 0) << line << '\n' << ran.err << ran.out;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("line"), line);
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_GT(out.at("check").at("rows").get<int64_t>(), 0);
        EXPECT_GT(out.at("check").at("of_bound").get<double>(), 1e-4) << "sums are rounded";
    }
}

TEST(RunPrenorm, HasTheFiguresOfItsWork) {
    const json out = json::parse(finegemm("run 'prenorm_gemm 10x8x64 slices=3' --device cpu --json").out);
    const double us = out.at("us").get<double>();
    EXPECT_NEAR(out.at("tflop_per_s").get<double>() * us * 1e6, 2 * 10 * 64 * (8 + 1), 1e-3);
    EXPECT_NEAR(out.at("gb_per_s").get<double>() * us * 1e3, 10 * 64 * 2 + 8 * 64 * 4 + 3 * 10 * (8 + 1) * 4, 1e-3);
}

TEST(RunPrenorm, TakesNothingOfGemm) {
    const std::pair<const char*, const char*> cases[] = {
        {"run 'prenorm_gemm 2x8x64' --config x", "--config: is for gemm and its kind, not for 'prenorm_gemm 2x8x64'"},
        {"run 'prenorm_gemm 2x8x64' --row-b-scales", "--row-b-scales: is for gemm and its kind"},
        {"bench --device cpu --shapes 'prenorm_gemm 2x8x64,8x16x16'", "'8x16x16' is one of gemm"},
        {"bench --device cpu --shapes 'prenorm_gemm 2x8x60'", "shape 'prenorm_gemm 2x8x60': a: has K = 60 columns"}};
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(arguments);
        EXPECT_EQ(ran.code, 2) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << arguments << '\n' << ran.err;
    }
}

TEST(BenchPrenorm, HasALineBesideThoseOfOtherCalls) {
    const Ran ran =
        finegemm("bench --device cpu --repeats 1 --shapes 'prenorm_gemm 2x8x64 slices=2,mqa_logits 2x8 8x32'");
    ASSERT_EQ(ran.code, 0) << ran.err;
    for (const char* line : {"  call\n", "  prenorm_gemm 2x8x64 slices=2\n", "  mqa_logits 2x8 8x32\n"})
        EXPECT_NE(ran.out.find(line), std::string::npos) << ran.out;
}

TEST(ExplainPrenorm, NamesTheKernelAndSaysHowKIsCut) {
    const std::pair<const char*, std::vector<const char*>> cases[] = {
        {"prenorm_gemm 13x24x28672",
         {" on h200: FineGEMM_prenorm_64x24_", "M of 13 is in tiles of 64 rows", "d is one sum", " predicted   rows"}},
        {"prenorm_gemm 13x32x64 slices=4",
         {": FineGEMM_prenorm_64x32_", "K of 64 is not cut", "3 of the 4 slices become zero"}},
        {"prenorm_gemm 137x24x7168 slices=16", {"parts, ", " slices\n", " slower ones\n"}}};
    for (const auto& [line, parts] : cases) {
        const Ran ran = finegemm("explain '" + std::string(line) + "' --device h200");
        ASSERT_EQ(ran.code, 0) << ran.err;
        for (const char* part : parts) EXPECT_NE(ran.out.find(part), std::string::npos) << part << '\n' << ran.out;
        const json out = json::parse(finegemm("explain '" + std::string(line) + "' --device h200 --json").out);
        EXPECT_NE(ran.out.find(out.at("kernel").get<std::string>()), std::string::npos);
        EXPECT_EQ(out.at("us"), out.at("plans")[0].at("us"));
    }
    const Ran ran = finegemm("explain 'prenorm_gemm 13x24x64' --device a100");
    EXPECT_EQ(ran.code, 2);
    EXPECT_NE(ran.err.find("device: 'a100' is not known"), std::string::npos) << ran.err;
}

TEST(Trial, AnErrorBeyondTheBoundOrNoNumberIsNotRight) {
    cli::Trial::Check check;
    check.add(1.0, 1.5, 1);
    EXPECT_TRUE(check.right());
    EXPECT_EQ(check.of_bound, 0.5);
    cli::Trial::Check beyond = check, nan = check;
    beyond.add(1.0, 2.5, 1), nan.add(std::numeric_limits<double>::quiet_NaN(), 1, 1);
    EXPECT_FALSE(beyond.right());
    nan.add(1.0, 1.0, 1);
    EXPECT_FALSE(nan.right());
}

}  // namespace
}  // namespace finegemm::test
