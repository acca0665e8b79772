// The product before a norm through the C and C++ APIs. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <finegemm/prenorm.h>

#include "api/prenorm_misuses.h"

namespace finegemm::test {
namespace {

// Programs were compiled with these.
static_assert(sizeof(finegemm_prenorm_args) == 3 * 56 + 72 && offsetof(finegemm_prenorm_args, sqrsum) == 2 * 56 + 72);
static_assert(offsetof(finegemm_prenorm_options, stream) == 16 && offsetof(finegemm_prenorm_options, poll_data) == 32);
static_assert(sizeof(finegemm_prenorm_shape) == 48 && offsetof(finegemm_prenorm_shape, slices) == 32);

TEST(PrenormCall, OfSlicesAddsUpToTheProductAndTheSquares) {
    const CContext context;
    PrenormCallInC c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    for (int64_t m = 0; m < 5; ++m) {
        float squares = 0;
        for (int64_t s = 0; s < 3; ++s) squares += c.sqrsum_data.at(s, m);
        EXPECT_EQ(squares, 64.0f * (1 + 4));
        for (int64_t n = 0; n < 24; ++n) {
            float sum = 0;
            for (int64_t s = 0; s < 3; ++s) sum += c.d_data.at(s * 5 + m, n);
            ASSERT_EQ(sum, 64 * 1.5f);
        }
    }
    EXPECT_TRUE(c.d_data.surroundings_intact() && c.sqrsum_data.surroundings_intact());
}

TEST(PrenormCall, WithoutRowsDoesNothing) {
    const CContext context;
    PrenormCallInC c;
    c.args.a.rows = c.args.d.matrix.rows = c.args.sqrsum.cols = 0;
    c.args.a.data = c.args.d.matrix.data = c.args.sqrsum.data = nullptr;
    EXPECT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
}

TEST(PrenormCall, IsExplainedInC) {
    const finegemm_prenorm_shape shape{sizeof shape, 100, 8192, 24, 7168, 16, "h100"};
    char text[1 << 16];
    finegemm_error e;
    size_t needed = 0;
    ASSERT_EQ(finegemm_explain_prenorm(&shape, text, sizeof text, &needed, &e), FINEGEMM_OK) << e.message;
    EXPECT_EQ(needed, std::strlen(text) + 1);
    const auto out = nlohmann::json::parse(text);
    EXPECT_EQ(out.at("device"), "h100");
    EXPECT_TRUE(out.at("kernel").get<std::string>().starts_with("FineGEMM_prenorm_"));
    EXPECT_LE(out.at("config").at("ctas").get<int>(), 100) << "num_sms";
    EXPECT_LE(out.at("config").at("slices").get<int>(), 16);
}

TEST(PrenormCall, IsLoggedWithWhatItIsOf) {
    std::vector<std::string> lines;
    Options options = cpu_options();
    options.log = [&](const LoggedCall& call) { lines.push_back(call.line); };
    Context context(options);
    PrenormCallInC c;
    Matrix d = c.d_data.view(), squares = c.sqrsum_data.view();
    d.rows = 5;
    prenorm_gemm(context, {c.a_data.view(), c.b_data.view(), {d, 3, 120}, squares});
    squares.rows = 1;
    prenorm_gemm(context, {c.a_data.view(), c.b_data.view(), {d}, squares});
    EXPECT_EQ(lines, (std::vector<std::string>{"prenorm_gemm 5x24x128 slices=3", "prenorm_gemm 5x24x128"}));
}

}  // namespace
}  // namespace finegemm::test
