// What the checks of K-grouped GEMMs let through, and what happens then. Layer tests.
#include <gtest/gtest.h>

#include "api/allocations.h"
#include "api/calls.h"
#include "ops/gemm/checks.h"
#include "support/cpu.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

TEST(KGrouped, TheCAbiComputesEachGroup) {
    const CContext context;
    KGroupedCall call, one;
    for (const int32_t accumulate : {0, 1}) {
        call.options.accumulate = accumulate;
        ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    }
    for (const int64_t g : {0, 2}) {
        const GemmArgs dense = one.problem.dense(g);
        finegemm_gemm_args args = {c_matrix(dense.a), c_matrix(dense.sfa), c_matrix(dense.b), c_matrix(dense.sfb),
                                   c_matrix(ConstMatrix(dense.d))};
        ASSERT_EQ(finegemm_gemm(context.get(), &args, nullptr, &one.error), FINEGEMM_OK) << one.error.message;
        for (int64_t r = 0; r < 40; ++r)
            for (int64_t c = 0; c < 256; ++c)
                ASSERT_EQ(call.problem.d_at(g, r, c), 2 * one.problem.d_at(g, r, c)) << g << ": " << r << ", " << c;
    }
    EXPECT_EQ(call.problem.d_at(1, 39, 255), 0);
    EXPECT_TRUE(call.problem.d.surroundings_intact());
}

TEST(KGrouped, DoesNothingWithoutRowsOrColumnsNotEvenLookForADevice) {
    Context context(cpu_options());
    for (const bool rows : {true, false}) {
        KGroupedProblem p(16, 64, 128, {0, 128}, 1);
        p.fill_d(7);
        KGroupedGemmArgs args = p.args();
        if (rows) args.a.rows = args.sfa.rows = args.d.matrix.rows = 0;
        else args.b.rows = args.sfb.rows = args.d.matrix.cols = 0;
        for (Device* d : {&args.a.device, &args.sfa.device, &args.b.device, &args.sfb.device, &args.d.matrix.device,
                          &args.offsets_device})
            *d = {DeviceType::Cuda, 0};
        EXPECT_NO_THROW(k_grouped_gemm(context, args));
        EXPECT_EQ(p.d_at(0, 0, 0), 7);
    }
}

TEST(KGrouped, LooksAtOffsetsOnTheHost) {
    Context context;
    KGroupedProblem p(16, 64, 256, {0, 128, 256}, 1);
    p.offsets = {0, 200, 256};
    p.fill_d(7);
    EXPECT_TRUE(contains(error_of([&] { k_grouped_gemm(context, p.args()); }), "offsets: [1] is 200"));
    EXPECT_EQ(p.d_at(0, 0, 0), 7);
}

TEST(KGrouped, TheCAbiTakesBlocks) {
    const CContext context;
    KGroupedCall columns, blocks;
    const KBlocks memory(blocks.problem);
    const KGroupedGemmArgs args = memory.args(blocks.problem);
    blocks.args.a = c_matrix(args.a), blocks.args.b = c_matrix(args.b);
    blocks.args.layout = FINEGEMM_BLOCKS;
    ASSERT_EQ(columns.run(context.get()), FINEGEMM_OK) << columns.error.message;
    ASSERT_EQ(blocks.run(context.get()), FINEGEMM_OK) << blocks.error.message;
    for (int64_t g = 0; g < 3; ++g)
        for (int64_t r = 0; r < 40; ++r)
            for (int64_t c = 0; c < 256; ++c)
                ASSERT_EQ(columns.problem.d_at(g, r, c), blocks.problem.d_at(g, r, c)) << g << ": " << r << ", " << c;
}

TEST(KGrouped, OffsetsMayLieOnTheHostForOperandsOnAGpu) {
    KGroupedProblem p(16, 64, 256, {0, 128, 256}, 1);
    for (const KLayout layout : {KLayout::Columns, KLayout::Blocks}) {
        KGroupedGemmArgs args = KBlocks(p).args(p);
        args.layout = layout;
        for (Device* d : {&args.a.device, &args.sfa.device, &args.b.device, &args.sfb.device, &args.d.matrix.device})
            *d = {DeviceType::Cuda, 0};
        const GemmOptions plain;
        EXPECT_NO_THROW(check_gemm({args, plain}));
    }
}

TEST(KGrouped, IsCheckedWithoutAllocation) {
    KGroupedProblem p(16, 64, 256, {0, 128, 256}, 1);
    const KGroupedGemmArgs args = p.args();
    const GemmOptions plain;
    const int64_t before = allocations();
    check_gemm({args, plain});
    EXPECT_EQ(allocations(), before);
}

}  // namespace
}  // namespace finegemm::test
