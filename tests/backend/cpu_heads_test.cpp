// D in heads with a gap in each, on the CPU backend. Layer tests.
#include <gtest/gtest.h>

#include "ops/gemm/cpu.h"
#include "plan/fields.h"
#include "support/cpu.h"
#include "support/matrix.h"

namespace finegemm::cpu_heads_test {
namespace {

using test::cpu_backend;

constexpr uint16_t kUntouched = 0x7fff;  // NaN

/// Where each column of the product lies, head by head.
std::vector<int64_t> columns_by_head(const Epilogue& x, int64_t n) {
    std::vector<int64_t> columns;
    for (int64_t head = 0; static_cast<int64_t>(columns.size()) < n; ++head) {
        const int64_t begin = head * (x.head_left + x.head_gap + x.head_right);
        for (int64_t i = 0; i < x.head_left; ++i) columns.push_back(begin + i);
        for (int64_t i = 0; i < x.head_right; ++i) columns.push_back(begin + x.head_left + x.head_gap + i);
    }
    return columns;
}

const Epilogue kHeads[] = {{.head_left = 8, .head_gap = 16, .head_right = 24},
                           {.head_left = 32, .head_gap = 8, .head_right = 0},
                           {.head_left = 0, .head_gap = 8, .head_right = 96},
                           {.head_left = 48, .head_gap = 1000, .head_right = 48}};

TEST(HeadColumns, AreThoseOfEachHeadInTurn) {
    for (const Epilogue& x : kHeads) {
        const DColumns columns = plan::columns_of(x);
        const std::vector<int64_t> expected = columns_by_head(x, 192);
        for (uint32_t col = 0; col < 192; ++col) EXPECT_EQ(columns.of(col), expected[col]) << col;
        const int64_t width = plan::width_of_d(x, 192);
        EXPECT_EQ(width, 192 + 192 / (x.head_left + x.head_right) * x.head_gap);
        EXPECT_EQ(plan::product_cols(x, width), 192);
        EXPECT_EQ(plan::product_cols(x, width + 8), width + 8) << "no product has such a D";
    }
    EXPECT_EQ(DColumns{}.of(123456), 123456u);
}

TEST(HeadColumns, OfTheWidestDAreDivided) {
    constexpr int64_t kPart = plan::kMaxHeadPart;
    const Epilogue x{.head_left = kPart, .head_gap = 8, .head_right = kPart};
    const uint32_t heads = INT32_MAX / (2 * kPart + 8), last = heads * 2 * kPart - 1;
    EXPECT_EQ(plan::columns_of(x).of(last), last + int64_t{heads} * 8);
}

/// The product with its columns side by side, and in heads, which leave the gaps as they were.
void expect_in_heads(const GemmArgs& plain, const Epilogue& heads, Numerics numerics) {
    const int64_t m = plain.d.rows, n = plain.d.cols, width = plan::width_of_d(heads, n), stride = width + 8;
    std::vector<uint16_t> together(static_cast<size_t>(m * n)), apart(static_cast<size_t>(m * stride), kUntouched);
    GemmArgs args = plain;
    args.d = {together.data(), plain.d.dtype, m, n, n, 1, {}};
    cpu_backend()->gemm({args, {.numerics = numerics}});
    args.d = {apart.data(), plain.d.dtype, m, width, stride, 1, {}};
    cpu_backend()->gemm({args, {.numerics = numerics, .epilogue = heads}});
    std::vector<uint16_t> expected(apart.size(), kUntouched);
    const std::vector<int64_t> columns = columns_by_head(heads, n);
    for (int64_t r = 0; r < m; ++r)
        for (int64_t c = 0; c < n; ++c)
            expected[static_cast<size_t>(r * stride + columns[static_cast<size_t>(c)])] =
                together[static_cast<size_t>(r * n + c)];
    EXPECT_EQ(apart, expected);
}

TEST(CpuHeads, HaveTheBitsOfTheProductAndLeaveTheGaps) {
    for (const Numerics numerics : {Numerics::Fast, Numerics::Exact, Numerics::Hopper}) {
        test::Problem p(20, 192, 272, 3);
        for (const Epilogue& heads : kHeads) expect_in_heads(p.args(), heads, numerics);
    }
}

TEST(CpuHeads, AreThoseOfProductsWithoutScales) {
    for (const DType of : {DType::BF16, DType::F16}) {
        const auto code = [&](size_t i, size_t period) {
            const float x = static_cast<float>(i % period) - static_cast<float>(period / 2);
            return of == DType::F16 ? f16_of_float(x) : bf16_of_float(x);
        };
        std::vector<uint16_t> a(20 * 64), b(192 * 64);
        for (size_t i = 0; i < a.size(); ++i) a[i] = code(i, 13);
        for (size_t i = 0; i < b.size(); ++i) b[i] = code(i, 7);
        const Matrix d{nullptr, of, 20, 192, 192, 1, {}};
        const ConstMatrix x{a.data(), of, 20, 64, 64, 1, {}};
        for (const ConstMatrix& y :
             {ConstMatrix{b.data(), of, 192, 64, 64, 1, {}}, {b.data(), of, 192, 64, 1, 192, {}}})
            for (const Epilogue& heads : kHeads) expect_in_heads({x, {}, y, {}, d}, heads, Numerics::Fast);
    }
}

}  // namespace
}  // namespace finegemm::cpu_heads_test
