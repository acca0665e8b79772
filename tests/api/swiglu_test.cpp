// SwiGLU with quantisation through the C and C++ APIs. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include <finegemm/swiglu.h>

#include "api/swiglu_misuses.h"

namespace finegemm::test {
namespace {

// Programs were compiled with these.
static_assert(sizeof(finegemm_swiglu_args) == 3 * 72 + 56 + 48 && offsetof(finegemm_swiglu_args, groups) == 272);
static_assert(offsetof(finegemm_swiglu_options, stream) == 40 && offsetof(finegemm_swiglu_options, poll_data) == 56);

TEST(SwigluCall, OfMasksWritesTheRowsThatAreUsed) {
    const CContext context;
    SwigluCallInC c;
    c.scale_data.at(5, 0) = -1, c.q_data.at(5, 0) = 7;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    const float value = 2 / (1 + std::exp(-2.0f)) * 2 * 0.5f;
    for (const int64_t row : {0, 3, 4})
        for (const int64_t block : {0, 1}) EXPECT_NEAR(c.scale_data.at(row, block), value / 448, 1e-8f);
    EXPECT_EQ(c.q_data.at(4, 159), 0x7e) << "448";
    EXPECT_EQ(std::tuple(c.scale_data.at(5, 0), c.q_data.at(5, 0)), std::tuple(-1.0f, 7)) << "the mask is 1";
    EXPECT_TRUE(c.q_data.surroundings_intact() && c.scale_data.surroundings_intact());
}

TEST(SwigluCall, WithoutOptionsIsTheUsualOne) {
    const CContext context;
    SwigluCallInC with, without;
    ASSERT_EQ(with.run(context.get()), FINEGEMM_OK);
    finegemm_error e;
    ASSERT_EQ(finegemm_swiglu_quantize(context.get(), &without.args, nullptr, &e), FINEGEMM_OK) << e.message;
    EXPECT_EQ(with.scale_data.at(0, 0), without.scale_data.at(0, 0));
}

TEST(SwigluCall, WithoutRowsDoesNothing) {
    const CContext context;
    SwigluCallInC c;
    for (finegemm_matrix* x : {&c.args.x.matrix, &c.args.q.matrix, &c.args.scales.matrix}) {
        x->rows = 0;
        x->data = nullptr;
    }
    c.args.weights = {};
    EXPECT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
}

TEST(SwigluCall, IsOneLineOfALog) {
    std::vector<std::string> lines;
    Options options;
    options.log = [&](const LoggedCall& call) { lines.push_back(call.line); };
    Context context(options);
    SwigluCallInC c;
    const Matrix scales{&c.scale_data.at(0, 0), DType::F32, 4, 2, 2, 1};
    const SwigluArgs args{.x = {{&c.x_data.at(0, 0), DType::F32, 4, 320, 320, 1}},
                          .q = {{&c.q_data.at(0, 0), DType::E4M3, 4, 160, 160, 1}},
                          .scales = {scales}};
    swiglu_quantize(context, args, {.interleaved = true});
    EXPECT_EQ(lines, (std::vector<std::string>{"swiglu_quantize 4x320 f32 interleaved"}));
}

}  // namespace
}  // namespace finegemm::test
