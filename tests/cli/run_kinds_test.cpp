// run with --row-b-scales and --out-dtype. Layer tests.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(RunKinds, GroupsAndBlocksOfScalesHaveDOfOneKind) {
    const std::pair<const char*, const char*> cases[] = {
        {"--out-dtype f32", "out_dtype: is f32, must be bf16 where b has a scale for each 128x128 block"},
        {"--row-b-scales --out-dtype f16", "--out-dtype"},
        {"--row-b-scales --groups 2 --out-dtype f32", "out_dtype: is f32, must be bf16 with groups of rows"}};
    for (const auto& [arguments, message] : cases) {
        const Ran ran = finegemm(std::string("run 8 16 128 --device cpu ") + arguments);
        EXPECT_EQ(ran.code, 2) << arguments << '\n' << ran.err;
        EXPECT_NE(ran.err.find(message), std::string::npos) << arguments << '\n' << ran.err;
    }
}

TEST(RunKinds, TakesScalesOfRowsOfB) {
    const std::string run = "run 33 40 144 --device cpu --repeats 1 --row-b-scales";
    for (const char* numerics : {"fast", "exact", "hopper"}) {
        const json out = json::parse(finegemm(run + " --out-dtype f32 --json --numerics " + numerics).out);
        EXPECT_TRUE(out.at("right").get<bool>());
        EXPECT_EQ(out.at("row_b_scales"), true);
        EXPECT_EQ(out.at("out_dtype"), "f32");
        EXPECT_LT(out.at("error").at("relative_rms").get<double>(), 0x1p-12) << "no rounding to bf16";
        constexpr double kBytes = (33 + 40) * 144 + 33 * 40 * 4 + (33 + 40) * 2 * 4;
        EXPECT_NEAR(out.at("gb_per_s").get<double>() * out.at("us").get<double>() * 1e3, kBytes, 1);
    }
    EXPECT_EQ(json::parse(finegemm(run + " --json").out).at("out_dtype"), "bf16");
    const std::string text = finegemm(run + " --out-dtype f32").out;
    EXPECT_NE(text.find("B[40, 144]^T in e4m3, scales 1x128, D in f32\n"), std::string::npos) << text;
    EXPECT_FALSE(json::parse(finegemm("run 8 8 16 --json --device cpu").out).contains("row_b_scales"));
}

TEST(RunKinds, TakesScalesOfRowsOfBInGroups) {
    for (const char* form : {"offsets", "indices", "prefix-sums", "masked"}) {
        const json out = json::parse(finegemm(std::string("run 200 40 144 --groups 3 --row-b-scales --device cpu "
                                                          "--repeats 1 --json --numerics hopper --form ") +
                                              form)
                                         .out);
        EXPECT_TRUE(out.at("right").get<bool>()) << form;
        EXPECT_EQ(out.at("row_b_scales"), true) << form;
    }
}

}  // namespace
}  // namespace finegemm::test
