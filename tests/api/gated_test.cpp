// Calls, right and wrong, of products whose D is their SwiGLU, quantised, from C. Layer tests.
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "api/calls.h"

namespace finegemm::test {
namespace {

/// D [16, 128], of 128 gates and ups, right until a test changes it.
struct GatedCall : GemmCall {
    std::vector<uint8_t> d = std::vector<uint8_t>(16 * 128, 0x7f);
    std::vector<float> scales = std::vector<float>(16, -1), weights = std::vector<float>(16, 1);
    finegemm_epilogue epilogue{};

    GatedCall() {
        epilogue.struct_size = sizeof epilogue;
        epilogue.alpha = 1;
        epilogue.sfd = {f32(scales, 1), 1, 0};
        options.epilogue = &epilogue;
        args.d.data = d.data();
        args.d.dtype = FINEGEMM_E4M3;
        args.d.cols = args.d.row_stride = 128;
    }
    static finegemm_matrix f32(std::vector<float>& x, int64_t cols) {
        const Matrix m{x.data(), DType::F32, static_cast<int64_t>(x.size()), cols, cols, 1, {}};
        return c_matrix(ConstMatrix(m));
    }
    void with_weights() { epilogue.row_weights = {f32(weights, 1), 1, 0}; }
};

TEST(Gated, IsWrittenFromC) {
    const CContext context;
    GatedCall call, weighted;
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    weighted.with_weights();
    weighted.weights[3] = 0;
    ASSERT_EQ(weighted.run(context.get()), FINEGEMM_OK) << weighted.error.message;
    for (size_t row = 0; row < 16; ++row) {
        EXPECT_GT(call.scales[row], 0);
        EXPECT_EQ(weighted.scales[row], row == 3 ? 1 : call.scales[row]);
        bool any = false;
        for (size_t col = 0; col < 128; ++col) any |= (weighted.d[row * 128 + col] & 0x7f) != 0;
        EXPECT_EQ(any, row != 3) << row;
    }
}

TEST(Gated, IsRefusedWithAReason) {
    const CContext context;
    const std::pair<void (*)(GatedCall&), const char*> misuses[] = {
        {[](GatedCall& c) { c.epilogue.gate_limit = -7; },
         "gate_limit: is -7, must be above 0; leave it out for a SwiGLU without it"},
        {[](GatedCall& c) { c.epilogue.gate_alpha = -1; },
         "gate_alpha: is -1, must be above 0; leave it out for a SwiGLU without it"},
        {[](GatedCall& c) { c.epilogue.up_offset = HUGE_VAL; },
         "up_offset: is inf, must be finite; look at what computed it"},
        {[](GatedCall& c) { c.epilogue.sfd = {}, c.epilogue.up_offset = 1; },
         "sfd: is left out, but d is quantised, as up_offset is given; pass memory for its scales"},
        {[](GatedCall& c) { c.args.d.dtype = FINEGEMM_BF16; },
         "d: has dtype bf16, must be e4m3 where sfd is given; pass memory of that type"},
        {[](GatedCall& c) { c.args.b.rows = 248; },
         "b: has 248 rows, must have a multiple of 256 where sfd is given: gates above ups, each a multiple of 128; "
         "pad "
         "both with rows of zeros"},
        {[](GatedCall& c) { c.args.d.cols = 64; },
         "d: has 64 columns, must have 128, half of the 256 rows of b, as gates and ups are pairs; pass it so"},
        {[](GatedCall& c) { c.epilogue.sfd.matrix.cols = 2; },
         "sfd: has shape [16, 2], must be [16, 1] (one for each row and 128 columns of d); pass memory of that shape"},
        {[](GatedCall& c) { c.epilogue.sfd.matrix.dtype = FINEGEMM_BF16; },
         "sfd: has dtype bf16, must be f32; pass memory of f32"},
        {[](GatedCall& c) { c.epilogue.sfd.count = 2, c.epilogue.sfd.stride = 16; },
         "sfd: has 2 matrices, must have 1, one for each of d; pass a stack"},
        {[](GatedCall& c) { c.epilogue.sfd.matrix.device_type = FINEGEMM_CUDA; },
         "sfd: is on cuda:0, but d is on cpu; all must be on one device"},
        {[](GatedCall& c) { c.with_weights(), c.epilogue.row_weights.matrix.rows = 15; },
         "row_weights: has 15 numbers in 1 stacks, must have 16 in 1, one for each row of d; pass as many"},
        {[](GatedCall& c) { c.epilogue.alpha = 2; }, "sfd: is given, but so is alpha; leave one of them out"},
        {[](GatedCall& c) { c.options.accumulate = 1; }, "accumulate: is set, but so is sfd; leave it out"},
    };
    for (const auto& [spoil, message] : misuses) {
        GatedCall call;
        spoil(call);
        EXPECT_EQ(call.run(context.get()), FINEGEMM_INVALID_ARGUMENT) << message;
        EXPECT_STREQ(call.error.message, message);
        EXPECT_EQ(call.d, GatedCall().d) << message;
        EXPECT_EQ(call.scales, GatedCall().scales) << message;
    }
}

TEST(Gated, IsApartFromWhatIsRead) {
    const CContext context;
    GatedCall in_weights, in_d, in_a;
    in_weights.with_weights();
    in_weights.epilogue.sfd.matrix.data = in_weights.weights.data();
    in_d.epilogue.sfd.matrix.data = in_d.d.data();
    in_a.epilogue.sfd.matrix.data = in_a.args.sfa.data;
    for (GatedCall* call : {&in_weights, &in_d, &in_a}) {
        EXPECT_EQ(call->run(context.get()), FINEGEMM_INVALID_ARGUMENT);
        EXPECT_NE(std::string(call->error.message).find("write to memory of its own"), std::string::npos)
            << call->error.message;
    }
}

TEST(Gated, IsUnknownToProgramsThatWereCompiledBefore) {
    const CContext context;
    GatedCall call;
    call.epilogue.struct_size = offsetof(finegemm_epilogue, sfd);
    EXPECT_EQ(call.run(context.get()), FINEGEMM_INVALID_ARGUMENT);
    EXPECT_STREQ(call.error.message, "d: has dtype e4m3, must be bf16, f32 or f16; pass memory of one of them");
}

}  // namespace
}  // namespace finegemm::test
