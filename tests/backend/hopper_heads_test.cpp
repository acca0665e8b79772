// What the Hopper backend launches where D has a gap in each head. Layer tests.
#include <finegemm/gemm/kernel_plan.h>

#include "plan/fields.h"
#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm {
namespace {

class HopperHeads : public test::HopperTest {};

constexpr Epilogue kHeads{.head_left = 128, .head_gap = 64, .head_right = 128};
constexpr int64_t kM = 1000, kN = 1024, kK = 1024, kWidth = kN + 4 * 64;

GemmArgs operands(Element element) {
    GemmArgs one = test::operands(kM, kN, kK);
    if (element == Element::BF16) one.a.dtype = one.b.dtype = DType::BF16, one.sfa = one.sfb = {};
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
        if (c.finish != Finish::HeadGaps) continue;
        SCOPED_TRACE(plan::name_of(c));
        const GemmOptions options{.epilogue = kHeads, .config = plan::name_of(c)};
        hopper->gemm({operands(c.a.element), options});
        expect_launched(last_launch(), c);
        ++seen;
    }
    EXPECT_EQ(seen, 7);
}

TEST_F(HopperHeads, ChoosesAKernelThatLeavesGaps) {
    const auto hopper = backend();
    for (const Element element : {Element::E4M3, Element::BF16}) {
        const GemmOptions options{.epilogue = kHeads};
        hopper->gemm({operands(element), options});
        EXPECT_NE(last_launch().entry.find("_head_gaps"), std::string::npos);
    }
}

TEST_F(HopperHeads, KeepsALaunchForEachSplit) {
    const auto hopper = backend();
    const GemmArgs args = operands(Element::E4M3);
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
}  // namespace finegemm
