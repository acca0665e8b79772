// finegemm explain: the account of each kind of product. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"

namespace finegemm::test {
namespace {

using nlohmann::json;

TEST(Explain, IsAsRecorded) {
    for (const char* shape : {"64 2112 7168", "4096 7168 2048", "8 16 16"}) {
        const Ran ran = finegemm(std::string("explain ") + shape);
        EXPECT_EQ(ran.code, 0) << ran.err;
        expect_golden("explain_" + replaced(shape, " ", "x"), ran.out);
    }
}

TEST(Explain, OfGroupsIsAsRecorded) {
    const Ran ran = finegemm("explain 8192 4096 7168 --groups 64 --alignment 128 --expected-m 40");
    EXPECT_EQ(ran.code, 0) << ran.err;
    expect_golden("explain_grouped", ran.out);
}

TEST(Explain, OfASmBudgetIsAsRecorded) {
    const Ran ran = finegemm("explain 64 2112 7168 --num-sms 66");
    EXPECT_EQ(ran.code, 0) << ran.err;
    expect_golden("explain_num_sms", ran.out);
}

TEST(Explain, OfScalesOfRowsOfBIsAsRecorded) {
    const Ran ran = finegemm("explain 2112 4096 7168 --row-b-scales --out-dtype f32");
    EXPECT_EQ(ran.code, 0) << ran.err;
    expect_golden("explain_row_b_scales", ran.out);
}

TEST(Explain, OfIntegersIsAsRecorded) {
    const Ran ran = finegemm("explain 64 2112 7168 --dtype i8");
    EXPECT_EQ(ran.code, 0) << ran.err;
    expect_golden("explain_i8", ran.out);
}

TEST(Explain, OfMxScalesIsAsRecorded) {
    const Ran ran = finegemm("explain 64 2112 7168 --a-mx --b-mx");
    EXPECT_EQ(ran.code, 0) << ran.err;
    expect_golden("explain_mx", ran.out);
}

TEST(Explain, TakesALineAsErrorsAndPlanTablesHaveIt) {
    for (const auto& [line, numbers] :
         {std::pair{"'gemm 64x2112x7168 num_sms=66'", "64 2112 7168 --num-sms 66"},
          {"'gemm 2112x4096x7168 e4m3:row128 e4m3:row128 f32'", "2112 4096 7168 --row-b-scales --out-dtype f32"},
          {"'gemm 4096x7168x32768' --k-groups 8", "4096 7168 32768 --k-groups 8"}}) {
        const Ran by_line = finegemm(std::string("explain ") + line), ran = finegemm(std::string("explain ") + numbers);
        EXPECT_EQ(by_line.code, 0) << by_line.err;
        EXPECT_EQ(by_line.out, ran.out);
    }
}

TEST(Explain, JsonNamesTheKernelOfTheTable) {
    const Ran table = finegemm("explain 64 2112 7168 --device h20"),
              ran = finegemm("explain 64 2112 7168 --device h20 --json");
    const json out = json::parse(ran.out);
    EXPECT_EQ(out.at("device"), "h20");
    EXPECT_TRUE(table.out.starts_with("64 x 2112 x 7168 on h20: " + out.at("chosen").at("name").get<std::string>()))
        << table.out;
}

}  // namespace
}  // namespace finegemm::test
