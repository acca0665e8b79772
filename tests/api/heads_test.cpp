// Wrong calls of products with a D in heads, from C. Layer tests.
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "api/calls.h"

namespace finegemm::test {
namespace {

/// D [16, 2 * (128 + 64)], of two heads of 96, 64 and 32, right until a test changes it.
struct HeadsCall : GemmCall {
    std::vector<uint16_t> d = std::vector<uint16_t>(16 * 384, 0x7fff);
    finegemm_epilogue epilogue{};

    HeadsCall() {
        epilogue.struct_size = sizeof epilogue;
        epilogue.alpha = 1;
        epilogue.head_left = 96, epilogue.head_gap = 64, epilogue.head_right = 32;
        options.epilogue = &epilogue;
        args.d.data = d.data();
        args.d.cols = args.d.row_stride = 384;
    }
};

TEST(Heads, AreWrittenFromC) {
    const CContext context;
    HeadsCall call;
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    for (size_t i = 0; i < call.d.size(); ++i) {
        const size_t col = i % 384 % 192;
        EXPECT_EQ(call.d[i] == 0x7fff, 96 <= col && col < 160) << i;
    }
}

TEST(Heads, AreRefusedWithAReason) {
    const CContext context;
    const std::pair<void (*)(HeadsCall&), const char*> misuses[] = {
        {[](HeadsCall& c) { c.epilogue.head_gap = 0; },
         "head_gap: is 0, must be a multiple of 8 from 8 to 65536; pad the heads"},
        {[](HeadsCall& c) { c.epilogue.head_left = 100; },
         "head_left: is 100, must be a multiple of 8 from 0 to 65536; pad the heads"},
        {[](HeadsCall& c) { c.epilogue.head_right = INT64_MAX; },
         "head_right: is 9223372036854775807, must be a multiple of 8 from 0 to 65536; pad the heads"},
        {[](HeadsCall& c) { c.epilogue.head_right = 40; },
         "head_left: is 96 and head_right 40, must add up to a divisor of N = 256, the rows of b; check both"},
        {[](HeadsCall& c) { c.epilogue.head_left = c.epilogue.head_right = 0; },
         "head_left: is 0 and head_right 0, must add up to a divisor of N = 256, the rows of b; check both"},
        {[](HeadsCall& c) { c.args.d.cols = 256; },
         "d: has 256 columns, must have 384: 2 heads of 96, 64 and 32; pass memory with the gaps"},
        {[](HeadsCall& c) { c.args.d.row_stride = 376; },
         "d: has row stride 376, must be at least its 384 columns (rows apart and ascending); make it contiguous"},
        {[](HeadsCall& c) { c.args.d.dtype = FINEGEMM_F16; },
         "d: has dtype f16, must be bf16 where head_left is given; pass memory of that type"},
        {[](HeadsCall& c) { c.epilogue.alpha = 2; }, "head_left: is given, but so is alpha; leave one of them out"},
        {[](HeadsCall& c) { c.options.accumulate = 1, c.args.d.dtype = FINEGEMM_F32; },
         "d: has dtype f32, must be bf16 where head_left is given; pass memory of that type"},
        {[](HeadsCall& c) { c.args.a.cols = c.args.b.cols = c.args.sfa.cols = c.args.sfb.cols = 0; },
         "a: has K = 0 columns, must have some where head_left is given; there is no product to add to"},
    };
    for (const auto& [spoil, message] : misuses) {
        HeadsCall call;
        spoil(call);
        EXPECT_EQ(call.run(context.get()), FINEGEMM_INVALID_ARGUMENT) << message;
        EXPECT_STREQ(call.error.message, message);
        EXPECT_EQ(call.d, HeadsCall().d) << message;
    }
}

TEST(Heads, AreNotOfGroups) {
    const CContext context;
    const finegemm_epilogue heads = HeadsCall().epilogue;
    GroupedCall call;
    call.options.epilogue = &heads;
    EXPECT_EQ(call.run(context.get()), FINEGEMM_INVALID_ARGUMENT);
    EXPECT_STREQ(call.error.message, "head_left: is given, but not in groups of rows can d have it; leave it out");
}

TEST(Heads, AreUnknownToProgramsThatWereCompiledBefore) {
    const CContext context;
    HeadsCall call;
    call.epilogue.struct_size = offsetof(finegemm_epilogue, head_left);
    call.args.d.cols = 256;
    EXPECT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
}

}  // namespace
}  // namespace finegemm::test
