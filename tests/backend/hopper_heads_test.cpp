// What the Hopper backend launches where D has a gap in each head. Layer tests.
#include <finegemm/gemm/kernel_plan.h>

#include "plan/elements.h"
#include "plan/fields.h"
#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_heads_test {
namespace {

class HopperHeads : public test::HopperTest {};

constexpr Epilogue kHeads{.head_left = 128, .head_gap = 64, .head_right = 128};
constexpr int64_t kM = 1000, kN = 1024, kK = 1024, kWidth = kN + 4 * 64;

GemmArgs operands(const Operand& a, const Operand& b, Output d) {
    GemmArgs one = test::operands(kM, kN, kK);
    if (a.scaling == Scaling::None) one.a.dtype = one.b.dtype = type_of(a.element).dtype, one.sfa = one.sfb = {};
    if (a.major == Major::MN) one.a.row_stride = 1, one.a.col_stride = kM;
    if (b.major == Major::MN) one.b.row_stride = 1, one.b.col_stride = kN;
    one.d.dtype = type_of(d).dtype;
    one.d.cols = one.d.row_stride = kWidth;
    return one;
}

void expect_launched(const mock::Launch& launch, const GemmConfig& c) {
    EXPECT_EQ(launch.entry, jit::gemm_entry(c, plan::name_of(c)));
    EXPECT_EQ(launch.smem_bytes, kernel_plan(c).smem.total);
    EXPECT_EQ(launch.gemm.n, kN);
    EXPECT_EQ(launch.gemm.d_row_stride, kWidth);
    for (const uint32_t col : {0u, 127u, 128u, 383u, 1023u})
        EXPECT_EQ(launch.heads.of(col), plan::columns_of(kHeads).of(col)) << col;
    EXPECT_EQ(launch.heads.of(1023), kWidth - 1);
}

TEST_F(HopperHeads, LaunchesEveryKernelByName) {
    const auto hopper = backend();
    int seen = 0;
    for (const GemmConfig& c : plan::kernels()) {
        if (c.finish != Finish::HeadGaps || c.scales == ScaleLayout::Rows) continue;
        SCOPED_TRACE(plan::name_of(c));
        const GemmOptions options{.epilogue = kHeads, .config = plan::name_of(c)};
        hopper->gemm({operands(c.a, c.b, c.output), options});
        expect_launched(last_launch(), plan::for_row_scales(c));  // scales of operands are row-major
        ++seen;
    }
    EXPECT_EQ(seen, 14);
}

TEST_F(HopperHeads, ChoosesAKernelThatLeavesGaps) {
    const auto hopper = backend();
    const auto expect_gaps = [&](const Operand& a, const Operand& b, Output d) {
        const GemmOptions options{.epilogue = kHeads};
        hopper->gemm({operands(a, b, d), options});
        EXPECT_NE(last_launch().entry.find("_head_gaps"), std::string::npos);
    };
    expect_gaps(kRowScaled, kBlockScaled, Output::BF16);
    for (const Major a : {Major::K, Major::MN})
        for (const Major b : {Major::K, Major::MN}) {
            expect_gaps(unscaled(Element::BF16, a), unscaled(Element::BF16, b), Output::BF16);
            expect_gaps(unscaled(Element::F16, a), unscaled(Element::F16, b), Output::F16);
        }
}

TEST_F(HopperHeads, KeepsALaunchForEachSplit) {
    const auto hopper = backend();
    const GemmArgs args = operands(kRowScaled, kBlockScaled, Output::BF16);
    const auto column_behind_the_first_gap = [&](int64_t left) {
        Epilogue heads = kHeads;
        heads.head_left = left, heads.head_right = 256 - left;
        const GemmOptions options{.epilogue = heads};
        hopper->gemm({args, options});
        return last_launch().heads.of(static_cast<uint32_t>(left));
    };
    EXPECT_EQ(column_behind_the_first_gap(128), 192u);
    EXPECT_EQ(column_behind_the_first_gap(64), 128u);
    const long before = encodings();
    EXPECT_EQ(column_behind_the_first_gap(128), 192u);
    EXPECT_EQ(encodings(), before) << "it is known";
}

}  // namespace
}  // namespace finegemm::hopper_heads_test
