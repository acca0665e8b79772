// Quantisation through the C ABI. Layer tests.
#include <gtest/gtest.h>

#include <tuple>

#include "api/calls.h"

namespace finegemm::test {
namespace {

TEST(CAbi, QuantizesRowsAndBlocks) {
    const CContext context;
    QuantizeCall rows;
    ASSERT_EQ(rows.run_rows(context.get()), FINEGEMM_OK) << rows.error.message;
    EXPECT_EQ(rows.scale_data.at(0, 1), 255.0f / 448);  // x[0, 255] = -255
    EXPECT_EQ(rows.q_data.at(0, 255), 0xfe);            // -448

    QuantizeCall blocks;
    blocks.scales.rows = 2;
    blocks.options.power_of_two_scales = 1;
    ASSERT_EQ(blocks.run_blocks(context.get()), FINEGEMM_OK) << blocks.error.message;
    EXPECT_EQ(blocks.scale_data.at(0, 2), 1.0f);  // 383 / 448, rounded up to a power of two
    EXPECT_EQ(blocks.scale_data.at(1, 1), 0.5f);  // 127 / 448
}

TEST(CAbi, QuantizesWholeRowsToIntegersWhereScalesHaveOneColumn) {
    const CContext context;
    QuantizeCall c;
    c.scales.cols = 1;
    c.q.dtype = FINEGEMM_I8;
    const float beside = c.scale_data.at(0, 1);
    ASSERT_EQ(c.run_rows(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(c.scale_data.at(0, 0), 383.0f / 127);  // x[0, 383] = -383
    EXPECT_EQ(c.q_data.at(0, 383), 0x81);            // -127
    EXPECT_EQ(c.scale_data.at(0, 1), beside) << "nothing beside it is written";
}

TEST(CAbi, QuantizesWeightsOfGroupsAndTransposesTheirCodes) {
    const CContext context;
    QuantizeWeightsCall c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(c.scale_data.at(0, 2), 383.0f / 448);   // x[0, 0, 383] = -383
    EXPECT_EQ(c.scale_data.at(3, 0), 511.0f / 448);   // x[1, 255, 0] = 511
    EXPECT_EQ(c.q_data.at(511, 0), 0x7e);             // 448
    EXPECT_EQ(c.transposed_data.at(384, 255), 0x7e);  // the same one
    EXPECT_EQ(c.transposed_data.at(383, 0), 0xfe);    // x[0, 0, 383]
    c.args.transposed = {};
    c.args.transposed.count = 2;
    c.transposed_data.at(383, 0) = 1;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(c.transposed_data.at(383, 0), 1);
}

TEST(CAbi, QuantizesColumnsOfGroupsAndRows) {
    const CContext context;
    QuantizeColumnsCall c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(std::tuple(c.numbers.at(1, 0), c.numbers.at(1, 1), c.numbers.at(1, 2)), std::tuple(0, 128, 384));
    EXPECT_EQ(c.scale_data.at(383, 0), 383.0f / 448);  // x[0, 383] = -383
    EXPECT_EQ(c.q_data.at(383, 0), 0xfe);              // -448
    EXPECT_EQ(c.q_data.at(383, 100), 0);               // behind the first group
    EXPECT_EQ(c.scale_data.at(383, 1), 283.0f / 448);  // x[100, 383], with which the second one begins
    EXPECT_EQ(c.scale_data.at(0, 2), 255.0f / 448);    // x[255, 0]
    EXPECT_EQ(c.scale_data.at(0, 3), 1.0f);            // of no group
    EXPECT_EQ(c.row_scale_data.at(0, 1), 255.0f / 448);
    EXPECT_EQ(c.row_q_data.at(0, 255), 0xfe);
    c.args.row_q = c.args.row_scales = c.args.offsets = c.args.begins = {};
    c.args.q.cols = 256, c.args.scales.cols = 2;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(c.scale_data.at(383, 1), 255.0f / 448);  // x[128, 383]
}

TEST(CAbi, GivesCodesWithExponentsScalesOfRowsAndBlocks) {
    const CContext context;
    ReencodeCall c;
    c.code_data.at(511, 40) = 0x7e;  // 448
    c.code_data.at(511, 41) = 0x09;  // 2^-6 and an eighth of that
    c.word_data.at(511, 0) = 0x7f7f7f00;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(c.scale_data.at(0, 0), 0x1p-8f);
    EXPECT_EQ(c.q_data.at(0, 0), 0x78);  // 256
    EXPECT_EQ(c.scale_data.at(511, 0), 1.0f);
    EXPECT_EQ(c.q_data.at(511, 0), 0) << "whose exponent is 0";
    EXPECT_EQ(c.q_data.at(511, 41), 0x09);
    EXPECT_EQ(c.changed.at(0, 0), 100);

    c.word_data.at(510, 0) = 0x7f7f7d7f;                      // 1 becomes a quarter
    c.code_data.at(510, 40) = 0x09;                           // below 2^-6 now
    c.args.scales.matrix.rows = 2, c.args.scales.stride = 6;  // of blocks
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(c.scale_data.at(3, 0), 1.0f);
    EXPECT_EQ(c.scale_data.at(2, 0), 0x1p-8f);
    EXPECT_EQ(c.q_data.at(510, 32), 0x28);
    EXPECT_EQ(c.q_data.at(510, 40), 0x02);
    EXPECT_EQ(c.changed.at(0, 0), 101);

    c.args.changed = {};
    ASSERT_EQ(finegemm_reencode(context.get(), &c.args, nullptr, &c.error), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(c.changed.at(0, 0), 101);
    for (finegemm_stack* x : {&c.args.codes, &c.args.words, &c.args.q, &c.args.scales}) x->matrix.rows = 0;
    EXPECT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
}

}  // namespace
}  // namespace finegemm::test
