// Selections through the C and C++ APIs. Layer tests.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <finegemm/topk.h>

#include "api/topk_misuses.h"
#include "support/cpu.h"

namespace finegemm::test {
namespace {

// Programs were compiled with these.
static_assert(sizeof(finegemm_topk_outputs) == 3 * 56 && sizeof(finegemm_topk_args) == 6 * 56);
static_assert(sizeof(finegemm_mqa_topk_args) == 72 + 9 * 56);
static_assert(sizeof(finegemm_paged_mqa_topk_args) == 72 + 8 * 56 + 8);
static_assert(sizeof(finegemm_topk_shape) == 96 && offsetof(finegemm_topk_shape, device) == 88);
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

nlohmann::json explained(const finegemm_topk_shape& shape) {
    char text[8192];
    finegemm_error e;
    EXPECT_EQ(finegemm_explain_topk(&shape, text, sizeof text, nullptr, &e), FINEGEMM_OK) << e.message;
    return nlohmann::json::parse(text);
}

TEST(TopkCall, IsExplainedInC) {
    finegemm_topk_shape shape = shape_of(1, 65536);
    EXPECT_EQ(explained(shape).at("kernel"), "FineGEMM_topk_few_c8");
    shape.num_sms = 2;  // two CTAs on each
    EXPECT_EQ(explained(shape).at("kernel"), "FineGEMM_topk_few_c4");
    EXPECT_FALSE(explained(shape).contains("logits"));
    shape.heads = 64, shape.dim = 128, shape.paged = 1;
    shape.requests = 100, shape.queries = 3, shape.keys = 8192 * 64;
    const nlohmann::json pages = explained(shape);
    EXPECT_EQ(pages.at("logits").at("kernel"), "FineGEMM_paged_mqa_logits_h64_d128");
    EXPECT_EQ(pages.at("steps"), nlohmann::json({{"count", 3}, {"rows", 102}, {"bytes", 102ll * 8192 * 64 * 4}}));
    EXPECT_EQ(pages.at("why").size(), 3u);
    shape.logits = 1;
    EXPECT_EQ(explained(shape).at("steps"), nlohmann::json({{"count", 1}, {"rows", 300}, {"bytes", 0}}));
}

TEST(TopkCall, IsLoggedWithWhatIsAskedFor) {
    std::vector<std::string> lines;
    Options options = cpu_options();
    options.log = [&](const LoggedCall& call) { lines.push_back(call.line); };
    Context context(options);
    MqaLogitsCall c;
    TopkInC out;
    Matrix heads = c.q_data.view();
    heads.rows = 8;
    MqaTopkArgs args{.q = {heads, 3, 256},
                     .k = c.k_data.view(),
                     .sfk = c.sfk_data.view(),
                     .w = c.w_data.view(),
                     .starts = c.starts_data.view(),
                     .ends = c.ends_data.view(),
                     .out = {out.indices.view(), {}, out.histogram.view()},
                     .logits = {}};
    mqa_topk(context, args, {.sorted = true});
    args.logits = c.d_data.view(), args.out.histogram = {};
    mqa_topk(context, args, {.form = LogitsForm::Untouched});
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], "mqa_topk 5 of 3x40 8x32 exact sorted histogram");
    EXPECT_EQ(lines[1], "mqa_topk 5 of 3x40 8x32 exact logits untouched");
}

TEST(TopkCall, OfPagesHasTheKeysThatThereAre) {
    const CContext context;
    PagedMqaTopkCallInC c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(c.indices.at(0, j), j == 0 ? 0 : -1);  // its request has one key
}

}  // namespace
}  // namespace finegemm::test
