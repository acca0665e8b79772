// run, bench and explain of a layer of experts. Layer tests.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/bench/experts/layer.h"
#include "cli/bench/experts/layer_truth.h"
#include "cli/support.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(LayerShape, IsReadFromALine) {
    const MoeShape s = cli::parse_layer("moe 64x7168x2048 256x8");
    EXPECT_EQ(std::tuple(s.tokens, s.hidden, s.intermediate, s.experts, s.choices), std::tuple(64, 7168, 2048, 256, 8));
    EXPECT_FALSE(s.biased);
    const MoeShape other = cli::parse_layer("moe 64x2880x2880 128x4 mxfp4 fp8 biased");
    EXPECT_EQ(std::tuple(other.biased, other.four_bit.has_value(), other.four_bit_alone),
              std::tuple(true, true, false));
}

TEST(LayerShape, OfAnotherTextIsRefused) {
    for (const char* line : {"moe 64x128", "moe 64x128x128", "moe 64x128x128 8", "moe 64x128x128 8x2 bf16",
                             "moe 64x100x128 8x2", "moe 64x128x128 2000x2", "moe 64x128x128 8x2 biased mxfp4",
                             "moe 64x128x128 8x2 biased biased", "moe 64x128x128 2x4", "moe 0x128x128 8x2"}) {
        const Error e = error_of([&] { cli::parse_layer(line); });
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(e, std::string("shape '") + line + "': ")) << e.what();
    }
    EXPECT_FALSE(cli::is_layer("moe"));
}

TEST(RunLayer, IsRight) {
    for (const char* line : {"moe 5x256x128 4x2", "moe 1x128x16 1x1", "moe 33x144x272 7x3", "moe 5x256x128 4x2 biased",
                             "moe 9x256x128 4x2 mxfp4 biased"}) {
        const Ran ran = finegemm("run '" + std::string(line) + "' --device cpu --repeats 1 --json");
        ASSERT_EQ(ran.code, 0) << line << '\n' << ran.err << ran.out;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("line"), line);
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_GT(out.at("check").at("rows").get<int64_t>(), 0);
        EXPECT_GT(out.at("check").at("of_bound").get<double>(), 0.3) << "codes have three bits";
    }
}

TEST(LayerTruth, IsTheSumOfExpertsTimesTheirWeights) {
    std::vector<float> x = {1, 2}, gate_up = {1, 0, 0, 1}, down = {1, 3}, scale = {0.5f};
    const auto matrix = [](std::vector<float>& values, int64_t rows) {
        const auto cols = static_cast<int64_t>(values.size()) / rows;
        return ConstMatrix{values.data(), DType::F32, rows, cols, cols};
    };
    cli::LayerTruth truth(matrix(x, 1));
    for (const double weight : {0.25, 0.5})
        truth.add({matrix(gate_up, 2), matrix(scale, 1)}, {matrix(down, 2), matrix(scale, 1)}, weight);
    // Gates and ups of an expert with biases.
    cli::LayerTruth biased(matrix(x, 1));
    std::vector<float> of_gate_up = {1.5f, -3}, of_down = {2, -1};
    biased.add({matrix(gate_up, 2), matrix(scale, 1)}, {matrix(down, 2), matrix(scale, 1)}, 2,
               {matrix(of_gate_up, 1), matrix(of_down, 1)});
    const auto z = static_cast<float>(2 / (1 + std::exp(-2.0)) * -2 * 0.5);
    std::vector<float> with_biases = {2 * (z + 2), 2 * (3 * z - 1)};
    EXPECT_LT(biased.relative_error(matrix(with_biases, 1)), 1e-6);
    // A gate of 0.5 and an up of 1.
    const auto y = static_cast<float>(0.75 * 0.5 / (1 + std::exp(-0.5)) * 0.5);
    std::vector<float> out = {y, 3 * y}, other = {y, 3.1f * y}, none = {0, 0};
    EXPECT_LT(truth.relative_error(matrix(out, 1)), 1e-6);
    EXPECT_NEAR(truth.relative_error(matrix(other, 1)), 0.1 / std::sqrt(10), 1e-6);
    EXPECT_EQ(truth.relative_error(matrix(none, 1)), 1);
}

TEST(RunLayer, HasTheFiguresOfItsWork) {
    const json out = json::parse(finegemm("run 'moe 3x128x256 2x2' --device cpu --json").out);
    const double us = out.at("us").get<double>();
    EXPECT_NEAR(out.at("tflop_per_s").get<double>() * us * 1e6, 3 * 2 * 6 * 128 * 256, 1e-3);
    EXPECT_NEAR(out.at("gb_per_s").get<double>() * us * 1e3,
                3 * (2 * 128 * 2 + 2 * 8) + 2 * (3 * 256 * 128 + 4 * (4 + 2)), 1e-3);
}

TEST(RunLayer, TakesNothingOfGemm) {
    const std::pair<const char*, const char*> cases[] = {
        {"run 'moe 2x128x128 4x2' --config x", "--config: is for gemm and its kind, not for 'moe 2x128x128 4x2'"},
        {"bench --device cpu --ep --ranks 2 --shapes 'moe 2x128x128 4x2 biased'",
         "biased: is given, but experts of several ranks have no biases"},
        {"bench --device cpu --shapes 'moe 2x128x128 4x2,8x16x16'", "'8x16x16' is one of gemm"},
        {"bench --device cpu --shapes 'moe 2x120x128 4x2'", "shape 'moe 2x120x128 4x2': hidden: is 120"}};
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(arguments);
        EXPECT_EQ(ran.code, 2) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << arguments << '\n' << ran.err;
    }
}

TEST(BenchLayer, HasALineBesideThoseOfOtherCalls) {
    const Ran ran = finegemm("bench --device cpu --repeats 1 --shapes 'moe 2x128x128 4x2,prenorm_gemm 2x8x64'");
    ASSERT_EQ(ran.code, 0) << ran.err;
    for (const char* line : {"  moe 2x128x128 4x2\n", "  prenorm_gemm 2x8x64\n"})
        EXPECT_NE(ran.out.find(line), std::string::npos) << ran.out;
}

TEST(ExplainLayer, ShowsEachLaunchAndWhy) {
    const Ran ran = finegemm("explain 'moe 64x7168x2048 256x8' --device h200");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json out = json::parse(finegemm("explain 'moe 64x7168x2048 256x8' --device h200 --json").out);
    EXPECT_GE(out.at("launches").size(), 5u);
    for (const auto& launch : out.at("launches"))
        EXPECT_NE(ran.out.find(launch.at("kernel").get<std::string>()), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find(out.at("why")[0].get<std::string>()), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace finegemm::test
