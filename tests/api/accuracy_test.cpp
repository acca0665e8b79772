// How good a result is said to be. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/cpu.h"
#include "support/grouped.h"
#include "support/k_grouped.h"
#include "workbench/accuracy.h"

namespace finegemm::test {
namespace {

TEST(Accuracy, ARightResultIsWithinItsBoundWhateverTheSignsOfScales) {
    Context context(cpu_options());
    Problem p(6, 136, 512, 3);
    for (int64_t r = 0; r < p.n; ++r)  // blocks that nearly cancel each other
        std::copy_n(&p.b.at(r, 0), 384, &p.b.at(r, 128));
    for (int64_t r = 0; r < p.m; ++r) std::copy_n(&p.a.at(r, 0), 384, &p.a.at(r, 128));
    const GemmArgs args = p.args();
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t kb = 1; kb < 4; kb += 2) p.sfa.at(r, kb) = -p.sfa.at(r, kb - 1);
    gemm(context, args);
    const Accuracy right = accuracy_of({args, {}}, 6);
    EXPECT_EQ(right.rows, 6);
    EXPECT_LE(right.of_bound, 1);
}

TEST(Accuracy, AWrongElementIsBeyondItsBound) {
    Context context(cpu_options());
    Problem p(6, 136, 512, 3);
    gemm(context, p.args());
    p.d.data()[0] ^= 0x8000;
    EXPECT_GT(accuracy_of({p.args(), {}}, 6).of_bound, 1);
}

TEST(Accuracy, AWrongCodeOrScaleOfASwigluIsBeyondItsBound) {
    Context context(cpu_options());
    Problem p(6, 512, 256, 3);
    std::vector<uint8_t> codes(6 * 256);
    std::vector<float> scales(6 * 2);
    GemmArgs args = p.args();
    args.d = {codes.data(), DType::E4M3, 6, 256, 256, 1, {}};
    GemmOptions options;
    options.epilogue.sfd = {{scales.data(), DType::F32, 6, 2, 2, 1, {}}};
    for (const bool between : {false, true}) {
        options.epilogue.bf16_between = options.epilogue.power_of_two_sfd = between;
        gemm(context, args, options);
        EXPECT_EQ(accuracy_of({args, options}, 6).rows, 6);
        EXPECT_LE(accuracy_of({args, options}, 6).of_bound, 1);
        scales[5] *= 4;
        EXPECT_GT(accuracy_of({args, options}, 6).of_bound, 1);
        scales[5] /= 4;
        const auto largest = std::ranges::max_element(codes, {}, [](uint8_t code) { return code & 0x7f; });
        *largest ^= 0x80;
        EXPECT_GT(accuracy_of({args, options}, 6).of_bound, 1);
    }
}

TEST(Accuracy, ARowThatIsStoredElsewhereIsBeyondItsBound) {
    Context context(cpu_options());
    GroupedProblem p({GroupForm::Offsets, 4, 40, 128, {0, 10, 10, 25, 40}}, 256, 384, 7);
    std::vector<int32_t> of_a(40), of_d(40);
    for (int32_t i = 0; i < 40; ++i) of_a[static_cast<size_t>(i)] = i % 7 - 1, of_d[static_cast<size_t>(i)] = 39 - i;
    GemmOptions options;
    options.epilogue.rows_of_a = {{of_a.data(), DType::I32, 40, 1, 1, 1, {}}};
    options.epilogue.rows_of_d = {{of_d.data(), DType::I32, 40, 1, 1, 1, {}}};
    grouped_gemm(context, p.args(), options);
    EXPECT_EQ(accuracy_of({p.args(), options}, 400).rows, 40);
    EXPECT_LE(accuracy_of({p.args(), options}, 400).of_bound, 1);
    std::swap(of_d[3], of_d[30]);
    EXPECT_GT(accuracy_of({p.args(), options}, 400).of_bound, 1);
}

TEST(Accuracy, CountsNanAndWhereItIsWrong) {
    Context context(cpu_options());
    Problem p(6, 136, 512, 3);
    p.a.at(2, 500) = p.b.at(7, 0) = 0x7f;  // a row and a column
    gemm(context, p.args());
    const Accuracy right = accuracy_of({p.args(), {}}, 6);
    EXPECT_EQ(right.nan, 136 + 5);
    EXPECT_EQ(right.nan_wrong, 0);
    EXPECT_LE(right.of_bound, 1);
    EXPECT_GT(right.relative_rms, 0x1p-12) << "that of the other values: they are rounded to bf16";
    EXPECT_LT(right.relative_rms, 0x1p-8);
    for (const auto& [row, value] : {std::pair{0, 0x7fc0}, {2, 0}}) {  // one that should not be, and one that should
        const uint16_t before = std::exchange(p.d.at(row, 0), static_cast<uint16_t>(value));
        const Accuracy wrong = accuracy_of({p.args(), {}}, 6);
        EXPECT_EQ(wrong.nan, 136 + 5 + (row == 0 ? 1 : -1));
        EXPECT_EQ(wrong.nan_wrong, 1);
        EXPECT_GT(wrong.of_bound, 1);
        p.d.at(row, 0) = before;
    }
}

/// One element that is the sum of two blocks, with these values and scales.
Accuracy of_two_blocks(float value0, float scale0, float value1, float scale1, float d, bool f32 = false) {
    Context context(cpu_options());
    std::vector<uint8_t> a(256, e4m3_of_float(value0)), b(8 * 256, e4m3_of_float(1));
    std::fill_n(&a[128], 128, e4m3_of_float(value1));
    std::vector<float> sfa{scale0, scale1}, sfb(16, 1), wide(8, d);
    std::vector<uint16_t> narrow(8, bf16_of_float(d));
    const auto view = [](auto& x, DType dtype, int64_t rows) {
        const auto cols = static_cast<int64_t>(x.size()) / rows;
        return Matrix{x.data(), dtype, rows, cols, cols, 1, {}};
    };
    const Matrix to = f32 ? view(wide, DType::F32, 1) : view(narrow, DType::BF16, 1);
    return accuracy_of({GemmArgs{view(a, DType::E4M3, 1), view(sfa, DType::F32, 1), view(b, DType::E4M3, 8),
                                 view(sfb, DType::F32, 8), to},
                        {}},
                       1);
}

TEST(Accuracy, InfinityIsRightWhereASumIsBeyondItsType) {
    const float inf = INFINITY;
    struct Case {
        float value0, scale0, value1, scale1, d;
        bool right, f32 = false;
    };
    const Case cases[] = {
        {1, 1e38f, 0, 1, inf, true},    // 1.28e40
        {1, 1e38f, 0, 1, -inf, false},  // of the other sign
        {-1, 1e38f, 0, 1, -inf, true},
        {1, 1e38f, 0, 1, 3e38f, false},  // saturated
        {1, 1e38f, 0, 1, NAN, false},
        {1, 1e36f, 0, 1, inf, false},             // 1.28e38 fits
        {1, 0x1.ffp120f, 0, 1, inf, true},        // the smallest number that bf16 rounds to infinity, which f32 holds
        {1, 0x1.ffp120f, 0, 1, inf, true, true},  // within the bound of the sum's error, 1.6%
        {1, 0x1.8p120f, 0, 1, inf, false},
        {1, 1e38f, -1, 1e38f, NAN, true},  // infinity - infinity, though the exact sum is 0
        {1, 1e38f, -1, 1e38f, inf, true},  // infinity, then a part of a sum that is not
        {1, 1e38f, -1, 1e36f, NAN, false},
        {1, 1e38f, -1, 1e36f, -inf, false},
        {1, inf, 1, 1, inf, true},
        {1, inf, 1, 1, 1, false},
        {1, inf, 0, inf, NAN, true},
        {1, inf, 0, inf, 1, false},
    };
    for (const Case& c : cases) {
        const Accuracy a = of_two_blocks(c.value0, c.scale0, c.value1, c.scale1, c.d, c.f32);
        EXPECT_EQ(a.of_bound <= 1, c.right)
            << c.value0 << " * " << c.scale0 << " + " << c.value1 << " * " << c.scale1 << " as " << c.d;
        EXPECT_EQ(a.inf, std::isinf(c.d) ? 8 : 0);
        EXPECT_EQ(a.nan, std::isnan(c.d) ? 8 : 0);
        EXPECT_TRUE(std::isfinite(a.relative_rms));
    }
}

TEST(Accuracy, AProductOfScalesBeyondF32MayMakeAnything) {
    Context context(cpu_options());
    Problem p(6, 136, 512, 3);
    for (int64_t r = 0; r < p.m; ++r) p.sfa.at(r, 1) = 1e30f;
    p.sfb.at(0, 1) = 1e30f;
    std::fill_n(&p.a.at(2, 128), 128, uint8_t{0});  // 0 * infinity
    gemm(context, p.args());
    const Accuracy right = accuracy_of({p.args(), {}}, 6);
    EXPECT_GT(right.nan, 0);
    EXPECT_GT(right.inf, 0);
    EXPECT_LE(right.of_bound, 1);
    p.d.at(0, 135) = 0x7f80;  // of another block of B
    EXPECT_EQ(accuracy_of({p.args(), {}}, 6).inf_wrong, 1);
}

TEST(Accuracy, OfGroupsLooksAtRowsOfEachGroupAndAtNoOthers) {
    Context context(cpu_options());
    for (const GroupForm form : kAllForms) {
        GroupedProblem p(random_grouping(form, 4, 300, 64, 3), 136, 272, 1, 16, 2);
        const GroupedGemmArgs args = p.args();
        grouped_gemm(context, args);
        int64_t rows = 0;
        for (int64_t r = 0; r < p.rows(); ++r) {
            if (p.grouping.group_of(r) >= 0) ++rows;
            else p.d.at(p.buffer_row(r), 0) = 0x7fc0;
        }
        const Accuracy right = accuracy_of({args, {}}, 4 * 1200);
        EXPECT_EQ(right.rows, rows);
        EXPECT_LE(right.of_bound, 1);
        EXPECT_GT(right.relative_rms, 0);
        EXPECT_LT(accuracy_of({args, {}}, 8).rows, 9);
        EXPECT_GT(accuracy_of({args, {}}, 8).rows, 0);
        int64_t last = p.rows() - 1;
        while (p.grouping.group_of(last) < 0) --last;
        p.d.at(p.buffer_row(last), 0) ^= 0x8000;
        EXPECT_GT(accuracy_of({args, {}}, 4 * 1200).of_bound, 1) << static_cast<int>(form) << ", row " << last;
    }
}

TEST(Accuracy, OfGroupsOfKLooksAtRowsOfEach) {
    Context context(cpu_options());
    KGroupedProblem p(30, 136, 768, {128, 384, 384, 768}, 1, 16, 2);
    const KGroupedGemmArgs args = p.args();
    k_grouped_gemm(context, args);
    const Accuracy right = accuracy_of({args, {}}, 90);
    EXPECT_EQ(right.rows, 90);
    EXPECT_LE(right.of_bound, 1);
    EXPECT_GT(right.relative_rms, 0);
    EXPECT_EQ(accuracy_of({args, {}}, 2).rows, 2);
    p.d_at(1, 29, 135) = 1e-30f;  // of a group without k
    EXPECT_GT(accuracy_of({args, {}}, 90).of_bound, 1);
    k_grouped_gemm(context, args);
    p.d_at(2, 29, 0) *= -1;
    EXPECT_GT(accuracy_of({args, {}}, 90).of_bound, 1);
}

TEST(RelativeDifference, IsThatOfTheRootMeanSquares) {
    std::vector<uint16_t> x = {0x4000, 0x3f80, 0, 0}, y = {0x3f80, 0x3f80, 0x3f80, 0x3f80};  // 2, 1, 0, 0; ones
    const auto view = [](std::vector<uint16_t>& v) { return Matrix{v.data(), DType::BF16, 2, 2, 2, 1, {}}; };
    EXPECT_DOUBLE_EQ(relative_difference(view(x), view(y)), std::sqrt(3) / 2);
    EXPECT_EQ(relative_difference(view(y), view(y)), 0);
    x[3] = y[3] = 0x7f80;
    EXPECT_DOUBLE_EQ(relative_difference(view(x), view(y)), std::sqrt(2. / 3)) << "equal infinities do not differ";
    x[3] = 0x7fc0;
    EXPECT_TRUE(std::isnan(relative_difference(view(x), view(y))));
}

}  // namespace
}  // namespace finegemm::test
