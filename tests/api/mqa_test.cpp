// An indexer's scores through the C and C++ APIs. Layer tests.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/mqa.h>

#include "api/mqa_misuses.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

static_assert(FINEGEMM_I32 == static_cast<int>(DType::I32));
static_assert(FINEGEMM_RELU_EXACT == static_cast<int>(Relu::Exact) && FINEGEMM_RELU_ABS == static_cast<int>(Relu::Abs));
static_assert(FINEGEMM_FILLED == static_cast<int>(LogitsForm::Filled) &&
              FINEGEMM_UNTOUCHED == static_cast<int>(LogitsForm::Untouched) &&
              FINEGEMM_COMPRESSED == static_cast<int>(LogitsForm::Compressed));
// Programs were compiled with these.
static_assert(sizeof(finegemm_mqa_logits_args) == 72 + 6 * 56);
static_assert(sizeof(finegemm_paged_mqa_logits_args) == 72 + 6 * 56);
static_assert(sizeof(finegemm_paged_mqa_schedule_args) == 2 * 56 + 8);
static_assert(offsetof(finegemm_mqa_options, stream) == 24 && offsetof(finegemm_mqa_options, poll_data) == 40);
static_assert(offsetof(finegemm_paged_mqa_schedule_options, stream) == 8);
static_assert(sizeof(finegemm_mqa_shape) == 72 && offsetof(finegemm_mqa_shape, heads) == 32 &&
              offsetof(finegemm_mqa_shape, dtype) == 56);

/// The logit of query i and key j of an MqaLogitsCall, in double.
double logit(MqaLogitsCall& c, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t h = 0; h < 8; ++h) {
        double x = 0;
        for (int64_t k = 0; k < 32; ++k)
            x += static_cast<double>(float_of_e4m3(c.q_data.at(i * 8 + h, k))) * float_of_e4m3(c.k_data.at(j, k));
        sum += std::max(x, 0.0) * c.w_data.at(i, h);
    }
    return 0.25 * sum;
}

TEST(MqaCall, HasLogitsInsideOfWindowsAndMinusInfinityOutside) {
    const CContext context;
    MqaLogitsCall c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 40; ++j) {
            const bool seen = j >= i && j < 10 * i + 20;
            if (seen) ASSERT_NEAR(c.d_data.at(i, j), logit(c, i, j), 0.5) << i << ", " << j;
            else ASSERT_EQ(c.d_data.at(i, j), -std::numeric_limits<float>::infinity()) << i << ", " << j;
        }
}

TEST(MqaCall, FormsDifferInWhereLogitsAreAndInNothingElse) {
    const CContext context;
    MqaLogitsCall filled, untouched, compressed;
    untouched.options.form = FINEGEMM_UNTOUCHED, compressed.options.form = FINEGEMM_COMPRESSED;
    for (auto* c : {&filled, &untouched, &compressed})
        ASSERT_EQ(c->run(context.get()), FINEGEMM_OK) << c->error.message;
    const uint32_t pattern = 0xa5a5a5a5;
    for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 40; ++j) {
            const bool seen = j >= i && j < 10 * i + 20;
            ASSERT_EQ(float_bits(untouched.d_data.at(i, j)), seen ? float_bits(filled.d_data.at(i, j)) : pattern);
            ASSERT_EQ(float_bits(compressed.d_data.at(i, j)),
                      j < 9 * i + 20 ? float_bits(filled.d_data.at(i, j + i)) : pattern);
        }
}

TEST(MqaCall, WithoutQueriesOrKeysDoesNothing) {
    const CContext context;
    MqaLogitsCall none, keyless;
    none.args.q.count = none.args.w.rows = none.args.starts.cols = none.args.ends.cols = none.args.d.rows = 0;
    none.args.q.matrix.data = nullptr;
    EXPECT_EQ(none.run(context.get()), FINEGEMM_OK) << none.error.message;
    keyless.args.k.rows = keyless.args.sfk.cols = keyless.args.d.cols = 0;
    EXPECT_EQ(keyless.run(context.get()), FINEGEMM_OK) << keyless.error.message;
    PagedMqaLogitsCall paged;
    paged.args.q.count = paged.args.w.rows = paged.args.lengths.rows = paged.args.block_table.rows = paged.args.d.rows =
        0;
    EXPECT_EQ(paged.run(context.get()), FINEGEMM_OK) << paged.error.message;
}

TEST(MqaCall, OfPagesWhoseContextsAreAllEmptyIsMinusInfinityAlone) {
    const CContext context;
    PagedMqaLogitsCall c;
    for (int64_t b = 0; b < 3; ++b) c.lengths_data.at(b, 0) = 0, c.table_data.at(b, 0) = c.table_data.at(b, 1) = -1;
    c.options.check_values = FINEGEMM_ON;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 40; ++j) ASSERT_EQ(c.rows.d_data.at(i, j), -std::numeric_limits<float>::infinity());
}

TEST(MqaCall, OfPagesNeedsNoSchedule) {
    const CContext context;
    PagedMqaLogitsCall with, without;
    set_shape(without.args.schedule, 0, 0), without.args.schedule.data = nullptr;
    ASSERT_EQ(with.run(context.get()), FINEGEMM_OK) << with.error.message;
    ASSERT_EQ(without.run(context.get()), FINEGEMM_OK) << without.error.message;
    for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 40; ++j)
            ASSERT_EQ(float_bits(with.rows.d_data.at(i, j)), float_bits(without.rows.d_data.at(i, j)));
    EXPECT_TRUE(std::isfinite(with.rows.d_data.at(2, 20)));
}

TEST(MqaCall, ScheduleGoesThroughC) {
    const CContext context;
    PagedMqaLogitsCall c;
    c.lengths_data.at(0, 0) = 0, c.lengths_data.at(1, 0) = 257, c.lengths_data.at(2, 0) = 1;
    const finegemm_paged_mqa_schedule_args args{
        .lengths = c.args.lengths, .queries_each = 1, .schedule = c.args.schedule};
    finegemm_error e;
    ASSERT_EQ(finegemm_paged_mqa_schedule(context.get(), &args, nullptr, &e), FINEGEMM_OK) << e.message;
    const int32_t wanted[] = {1, 0, 1, 0, 1, 1, 2, 0, 3, 0};  // three units on four slots
    EXPECT_TRUE(std::equal(wanted, wanted + 10, c.schedule_data.data()));
}

TEST(MqaCall, IsExplainedInC) {
    finegemm_mqa_shape shape{sizeof shape,      1, 256, 2, 8192, 32, 64, 16, FINEGEMM_BF16, FINEGEMM_UNTOUCHED,
                             FINEGEMM_RELU_ABS, 0};
    char text[4096];
    finegemm_error e;
    size_t needed = 0;
    ASSERT_EQ(finegemm_explain_mqa(&shape, text, sizeof text, &needed, &e), FINEGEMM_OK) << e.message;
    EXPECT_EQ(needed, std::strlen(text) + 1);
    EXPECT_NE(std::string(text).find("\"FineGEMM_paged_mqa_logits_h32_d64\""), std::string::npos) << text;
    shape.form = FINEGEMM_COMPRESSED;
    EXPECT_EQ(finegemm_explain_mqa(&shape, text, sizeof text, nullptr, &e), FINEGEMM_INVALID_ARGUMENT);
    EXPECT_NE(std::string(e.message).find("form: is compressed"), std::string::npos) << e.message;
}

TEST(MqaCall, IsLoggedWithWhatItIsOf) {
    std::vector<std::string> lines;
    Options options = cpu_options();
    options.log = [&](const LoggedCall& call) { lines.push_back(call.line); };
    Context context(options);
    PagedMqaLogitsCall p;
    MqaLogitsCall& c = p.rows;
    Matrix q = c.q_data.view();
    q.rows = 8;
    mqa_logits(context,
               {.q = {q, 3, 256},
                .k = c.k_data.view(),
                .sfk = c.sfk_data.view(),
                .w = c.w_data.view(),
                .starts = c.starts_data.view(),
                .ends = c.ends_data.view(),
                .d = c.d_data.view()},
               {.relu = Relu::Abs});
    paged_mqa_logits(context, {.q = {q, 3, 256},
                               .cache = p.cache_data.view(),
                               .w = c.w_data.view(),
                               .lengths = p.lengths_data.view(),
                               .block_table = p.table_data.view(),
                               .schedule = {},
                               .d = c.d_data.view()});
    paged_mqa_schedule(context, {p.lengths_data.view(), 1, p.schedule_data.view()});
    EXPECT_EQ(lines, (std::vector<std::string>{"mqa_logits 3x40 8x32 f32 filled abs",
                                               "paged_mqa_logits 3x1x40 8x32 page16 f32 filled exact",
                                               "paged_mqa_schedule 3x1 to 4 slots"}));
}

}  // namespace
}  // namespace finegemm::test
