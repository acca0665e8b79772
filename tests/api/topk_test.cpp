// Selections through the C and C++ APIs. Layer tests.
#include <gtest/gtest.h>

#include <limits>

#include <finegemm/topk.h>

#include "api/topk_misuses.h"

namespace finegemm::test {
namespace {

// Programs were compiled with these.
static_assert(sizeof(finegemm_topk_outputs) == 3 * 56 && sizeof(finegemm_topk_args) == 6 * 56);
static_assert(sizeof(finegemm_mqa_topk_args) == 72 + 9 * 56);
static_assert(sizeof(finegemm_paged_mqa_topk_args) == 72 + 8 * 56 + 8);
static_assert(offsetof(finegemm_topk_options, stream) == 32 && offsetof(finegemm_topk_options, poll_data) == 48);

TEST(TopkCall, SelectsInsideOfWindows) {
    const CContext context;
    TopkCallInC c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t i = 0; i < 3; ++i)  // row i has 3 i numbers, from column i on
        for (int64_t j = 0; j < 5; ++j) {
            const bool found = j < 3 * i;
            EXPECT_EQ(c.indices.at(i, j), found ? i + j : -1);
            EXPECT_EQ(c.values.at(i, j),
                      found ? static_cast<float>(-(i + j)) : -std::numeric_limits<float>::infinity());
        }
    EXPECT_EQ(c.histogram.at(1, 67), 1);  // -1
    EXPECT_EQ(c.histogram.at(1, 63), 1);  // -2
    EXPECT_EQ(c.histogram.at(1, 61), 1);  // -3
}

TEST(TopkCall, OfLogitsIsThatOfThoseItHasWritten) {
    const CContext context;
    MqaTopkCallInC c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 5; ++j) {
            EXPECT_EQ(c.values.at(i, j), c.rows.d_data.at(i, c.indices.at(i, j)));
            EXPECT_LE(c.values.at(i, j), c.values.at(i, std::max<int64_t>(j - 1, 0)));
        }
}

TEST(TopkCall, OfPagesHasTheKeysThatThereAre) {
    const CContext context;
    PagedMqaTopkCallInC c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(c.indices.at(0, j), j == 0 ? 0 : -1);  // its request has one key
}

}  // namespace
}  // namespace finegemm::test
