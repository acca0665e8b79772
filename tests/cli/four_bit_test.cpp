// run, bench and explain of products with weights of 4 bits. Layer tests.
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "cli/bench/four_bit/trial.h"
#include "cli/support.h"
#include "ops/four_bit/call.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(FourBitShape, IsReadFromTheLineOfALog) {
    for (const FourBitShape& shape :
         {FourBitShape{.m = 128, .n = 4096, .k = 7168, .groups = 8, .expected_m = 16, .fp8 = true},
          FourBitShape{.format = FourBitFormat::Int4, .m = 1, .n = 8, .k = 128},
          FourBitShape{.m = 7, .n = 16, .k = 32, .groups = 2, .alignment = 128, .num_sms = 20}})
        EXPECT_EQ(cli::parse_four_bit(text_of(shape)), shape) << text_of(shape);
}

TEST(FourBitShape, OfAnotherTextIsRefused) {
    for (const char* line :
         {"four_bit_gemm 8x24", "four_bit_gemm 8x24x64", "four_bit_gemm 8x24x64 nvfp4", "four_bit_gemm 8x24x64 mxfp4 8",
          "four_bit_gemm 8x24x64 mxfp4 groups=", "four_bit_gemm 8x24x64 mxfp4 groups=0",
          "four_bit_gemm 8x24x64 mxfp4 rows=8", "four_bit_gemm 8x24x60 mxfp4", "four_bit_gemm 8x24x64 int4",
          "four_bit_gemm 8x20x64 mxfp4", "four_bit_gemm 8x24x64 mxfp4 groups=70000"}) {
        const Error e = error_of([&] { cli::parse_four_bit(line); });
        EXPECT_EQ(e.code(), Errc::InvalidArgument);
        EXPECT_TRUE(contains(e, std::string("shape '") + line + "': ")) << e.what();
    }
}

TEST(RunFourBit, IsRight) {
    for (const char* line :
         {"four_bit_gemm 13x136x320 mxfp4", "four_bit_gemm 20x24x256 int4 groups=3",
          "four_bit_gemm 20x24x256 mxfp4 groups=3 fp8", "four_bit_gemm 20x24x256 int4 groups=3 alignment=16 fp8"}) {
        const Ran ran = finegemm("run '" + std::string(line) + "' --device cpu --repeats 1 --json");
        ASSERT_EQ(ran.code, 0) << line << '\n' << ran.err << ran.out;
        const json out = json::parse(ran.out);
        EXPECT_EQ(out.at("line"), line);
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_GT(out.at("check").at("rows").get<int64_t>(), 0);
        EXPECT_GT(out.at("check").at("of_bound").get<double>(), 1e-4) << "sums are rounded";
    }
}

TEST(RunFourBit, CountsTheBytesOfPackedWeights) {
    const json out = json::parse(finegemm("run 'four_bit_gemm 10x256x256 int4' --device cpu --json").out);
    const double us = out.at("us").get<double>();
    EXPECT_NEAR(out.at("tflop_per_s").get<double>() * us * 1e6, 2.0 * 10 * 256 * 256, 1e-3);
    EXPECT_NEAR(out.at("gb_per_s").get<double>() * us * 1e3, 4 * 8448 + 10 * (256 + 4 * 2 + 2 * 256), 1e-3);
}

TEST(ExplainFourBit, NamesBothProductsAndTheFaster) {
    const std::pair<const char*, std::vector<const char*>> cases[] = {
        {"four_bit_gemm 128x4096x7168 mxfp4 groups=8 fp8",
         {": FineGEMM_four_bit_Mxfp4\n", "weights of 4 bits are expected to take ",
          "tiles of 48 rows x 256 columns, 128 ", " mxfp4  FineGEMM_four_bit_Mxfp4", " fp8    m"}},
        {"four_bit_gemm 1000x4096x7168 int4",
         {": FineGEMM_four_bit_Int4_many\n", "fp8 is not given", "1000 rows are one group"}}};
    for (const auto& [line, parts] : cases) {
        const Ran ran = finegemm("explain '" + std::string(line) + "' --device h200");
        ASSERT_EQ(ran.code, 0) << ran.err;
        for (const char* part : parts) EXPECT_NE(ran.out.find(part), std::string::npos) << part << '\n' << ran.out;
    }
}

}  // namespace
}  // namespace finegemm::test
