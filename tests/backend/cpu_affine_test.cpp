// D = alpha A B + beta C + bias on the CPU backend: the bits of its documented steps, in every grouping. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/gemm/cpu.h"
#include "support/cpu.h"
#include "support/grouped.h"

namespace finegemm {
namespace {

using test::Buffer;
using test::cpu_backend;

constexpr float kAlpha = 0.37f, kBeta = -1.7f;

/// A matrix of any type of D.
struct Values {
    DType dtype;
    int64_t rows, cols, stride;
    std::vector<uint32_t> words;

    Values(DType type, int64_t rows_, int64_t cols_, int64_t padding = 0)
        : dtype(type), rows(rows_), cols(cols_), stride(cols_ + padding) {
        words.assign(static_cast<size_t>(rows * stride * size_of(type) + 3) / 4, 0xffffffff);  // NaN in each type
    }
    void set(int64_t row, int64_t col, float x) {
        const int64_t i = row * stride + col;
        if (dtype == DType::F32) reinterpret_cast<float*>(words.data())[i] = x;
        else reinterpret_cast<uint16_t*>(words.data())[i] = rounded(dtype, x);
    }
    float at(int64_t row, int64_t col) const {
        const int64_t i = row * stride + col;
        if (dtype == DType::F32) return reinterpret_cast<const float*>(words.data())[i];
        const uint16_t half = reinterpret_cast<const uint16_t*>(words.data())[i];
        return dtype == DType::F16 ? float_of_f16(half) : float_of_bf16(half);
    }
    void fill(uint32_t seed, float deviation) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal(0, deviation);
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c) set(r, c, normal(random));
    }
    static uint16_t rounded(DType type, float x) { return type == DType::F16 ? f16_of_float(x) : bf16_of_float(x); }
    Matrix view() { return {words.data(), dtype, rows, cols, stride, 1, {}}; }
};

float as(DType type, float x) {
    return type == DType::F32   ? x
           : type == DType::F16 ? float_of_f16(f16_of_float(x))
                                : float_of_bf16(bf16_of_float(x));
}

/// docs/numerics.md, "Alpha, beta, C and bias".
float steps(float sum, float c, float bias) { return std::fma(kBeta, c, kAlpha * sum) + bias; }

void expect_bits(float found, float expected, int64_t row, int64_t col) {
    ASSERT_EQ(float_bits(found), float_bits(expected)) << "D[" << row << ", " << col << "]";
}

class CpuAffine : public testing::TestWithParam<DType> {};
class CpuAffineUnscaled : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, CpuAffine, testing::Values(DType::BF16, DType::F16, DType::F32),
                         [](const auto& type) { return "D" + name_of(type.param); });
INSTANTIATE_TEST_SUITE_P(Types, CpuAffineUnscaled, testing::Values(DType::BF16, DType::F16),
                         [](const auto& type) { return name_of(type.param); });

TEST_P(CpuAffine, HasTheBitsOfItsStepsFromTheSumsInF32) {
    for (const Numerics numerics : {Numerics::Fast, Numerics::Hopper}) {
        test::Problem p(70, 136, 400, 3, false, 16);
        Values sums(DType::F32, p.m, p.n), c(GetParam(), p.m, p.n, 24), d(GetParam(), p.m, p.n, 8),
            bias(DType::F32, 1, p.n);
        c.fill(4, 1000);
        bias.fill(5, 1000);
        GemmArgs args = p.args();
        args.d = sums.view();
        cpu_backend(2)->gemm({args, {.numerics = numerics}});
        args.d = d.view();
        cpu_backend(2)->gemm({args,
                              {.numerics = numerics,
                               .epilogue = {.alpha = kAlpha, .beta = kBeta, .c = {c.view()}, .bias = bias.view()}}});
        for (int64_t r = 0; r < p.m; ++r)
            for (int64_t n = 0; n < p.n; ++n)
                expect_bits(d.at(r, n), as(GetParam(), steps(sums.at(r, n), c.at(r, n), bias.at(0, n))), r, n);
        EXPECT_TRUE(std::isnan(d.at(0, p.n))) << "the padding of rows is not written";
    }
}

TEST_P(CpuAffine, RoundsExactSumsOnce) {
    test::Problem p(9, 16, 272, 3);
    Values c(GetParam(), p.m, p.n), d(GetParam(), p.m, p.n), bias(DType::F32, 1, p.n);
    c.fill(4, 10);
    bias.fill(5, 10);
    GemmArgs args = p.args();
    args.d = d.view();
    std::vector<double> exact(static_cast<size_t>(p.m * p.n));
    ThreadPool pool(1);
    cpu_gemm_exact(args, pool, exact.data());
    cpu_backend(2)->gemm({args,
                          {.numerics = Numerics::Exact,
                           .epilogue = {.alpha = kAlpha, .beta = kBeta, .c = {c.view()}, .bias = bias.view()}}});
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t n = 0; n < p.n; ++n) {
            double x = double{kAlpha} * exact[static_cast<size_t>(r * p.n + n)];
            x += double{kBeta} * c.at(r, n);
            x += bias.at(0, n);
            const float expected = GetParam() == DType::F32   ? static_cast<float>(x)
                                   : GetParam() == DType::F16 ? float_of_f16(f16_of_double(x))
                                                              : float_of_bf16(bf16_of_double(x));
            expect_bits(d.at(r, n), expected, r, n);
        }
}

TEST_P(CpuAffine, ReadsCBeforeItWritesDInItsPlace) {
    test::Problem p(33, 24, 144, 6);
    Values c(GetParam(), p.m, p.n), apart(GetParam(), p.m, p.n);
    c.fill(7, 10);
    GemmArgs args = p.args();
    args.d = apart.view();
    cpu_backend(2)->gemm({args, {.epilogue = {.c = {c.view()}}}});
    args.d = c.view();
    cpu_backend(2)->gemm({args, {.epilogue = {.c = {c.view()}}}});
    EXPECT_EQ(c.words, apart.words);
}

TEST_P(CpuAffine, LeavesOutWhatIsNotGiven) {
    test::Problem p(5, 16, 128, 8);
    Values sums(DType::F32, p.m, p.n), nan(GetParam(), p.m, p.n), d(GetParam(), p.m, p.n);
    GemmArgs args = p.args();
    args.d = sums.view();
    cpu_backend(1)->gemm({args, {}});
    args.d = d.view();
    cpu_backend(1)->gemm({args, {.epilogue = {.alpha = 2, .beta = 0, .c = {nan.view()}}}});
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t n = 0; n < p.n; ++n) expect_bits(d.at(r, n), as(GetParam(), 2 * sums.at(r, n)), r, n);
}

TEST_P(CpuAffine, GroupsTakeTheirRowsOfCAndLeaveTheOthers) {
    for (const GroupForm form : test::kAllForms) {
        test::GroupedProblem p(test::random_grouping(form, 5, 192, 64, 9), 40, 256, 10, 16, 3);
        const int64_t rows = p.grouping.stacks() * p.a_pitch();
        Values sums(DType::F32, rows, p.n), c(GetParam(), rows, p.n, 16), d(GetParam(), rows, p.n),
            bias(DType::F32, 1, p.n);
        c.fill(11, 100);
        bias.fill(12, 100);
        GroupedGemmArgs args = p.args();
        const auto stack = [&](Values& x) {
            Matrix first = x.view();
            first.rows = p.grouping.m;
            return Stack{first, p.grouping.stacks(), p.a_pitch() * x.stride};
        };
        args.d = stack(sums);
        cpu_backend(2)->gemm({args, {}});
        args.d = stack(d);
        cpu_backend(2)->gemm(
            {args, {.epilogue = {.alpha = kAlpha, .beta = kBeta, .c = stack(c), .bias = bias.view()}}});
        for (int64_t i = 0; i < p.rows(); ++i)
            for (int64_t n = 0; n < p.n; ++n) {
                const int64_t r = p.buffer_row(i);
                if (p.grouping.group_of(i) >= 0)
                    expect_bits(d.at(r, n), as(GetParam(), steps(sums.at(r, n), c.at(r, n), bias.at(0, n))), r, n);
                else if (form == GroupForm::Indices) expect_bits(d.at(r, n), 0, r, n);
                else ASSERT_TRUE(std::isnan(d.at(r, n))) << "row " << i << " has no group";
            }
    }
}

TEST_P(CpuAffineUnscaled, HasTheBitsOfItsSteps) {
    const DType of = GetParam();
    Values a(of, 20, 136), b(of, 24, 136), c(of, 20, 24), d(of, 20, 24), sums(DType::F32, 20, 24),
        bias(DType::F32, 1, 24);
    for (Values* x : {&a, &b, &c, &bias}) x->fill(static_cast<uint32_t>(x - &a) + 13, 3);
    cpu_backend(1)->gemm({GemmArgs{a.view(), {}, b.view(), {}, sums.view()}, {}});
    cpu_backend(1)->gemm({GemmArgs{a.view(), {}, b.view(), {}, d.view()},
                          {.epilogue = {.alpha = kAlpha, .beta = kBeta, .c = {c.view()}, .bias = bias.view()}}});
    for (int64_t r = 0; r < 20; ++r)
        for (int64_t n = 0; n < 24; ++n)
            expect_bits(d.at(r, n), as(of, steps(sums.at(r, n), c.at(r, n), bias.at(0, n))), r, n);
}

}  // namespace
}  // namespace finegemm
