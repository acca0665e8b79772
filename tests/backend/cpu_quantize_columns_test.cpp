// Quantisation of columns on the CPU: against that of rows of the transpose. Layer tests.
#include <gtest/gtest.h>

#include "ops/quantize/cpu.h"
#include "support/quantize.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::ColumnsProblem;
using test::Input;

/// Rows of x from `first` on as columns, with zeros behind.
Input transposed(ColumnsProblem& p, int64_t first, int64_t rows, int64_t cols) {
    Input t(p.x.dtype, p.k, cols, 0);
    for (int64_t c = 0; c < p.k; ++c)
        for (int64_t r = 0; r < cols; ++r) t.set(c, r, r < rows ? p.x.at(first + r, c) : 0.0f);
    return t;
}

/// Columns of q from `first_col` on are rows of x from `first` on, and zeros up to `cols`.
void expect_columns(ColumnsProblem& p, int64_t first_col, int64_t first, int64_t rows, int64_t cols) {
    if (cols == 0) return;
    ThreadPool pool(1);
    Input t = transposed(p, first, rows, cols);
    test::Buffer<uint8_t> q(DType::E4M3, p.k, cols);
    test::Buffer<float> scales(DType::F32, p.k, ColumnsProblem::blocks(cols));
    const QuantizeOptions options{.power_of_two_scales = p.power_of_two};
    run_on_cpu(QuantizeCall{ScaleShape::Rows, t.view(), q.view(), scales.view(), options}, pool);
    for (int64_t c = 0; c < p.k; ++c) {
        for (int64_t r = 0; r < cols; ++r) ASSERT_EQ(p.q.at(c, first_col + r), q.at(c, r)) << c << ", " << r;
        for (int64_t b = 0; b < ColumnsProblem::blocks(cols); ++b)
            ASSERT_EQ(p.scales.at(first_col / 128 + b, c), scales.at(c, b)) << c << ", " << b;
    }
}

/// Codes and scales of rows are those of quantize_rows where a row has a group, and else are not written.
void expect_rows(ColumnsProblem& p) {
    ThreadPool pool(1);
    test::Buffer<uint8_t> q(DType::E4M3, p.m, p.k);
    test::Buffer<float> scales(DType::F32, p.m, ColumnsProblem::blocks(p.k));
    const QuantizeOptions options{.power_of_two_scales = p.power_of_two};
    run_on_cpu(QuantizeCall{ScaleShape::Rows, p.x.view(), q.view(), scales.view(), options}, pool);
    const int64_t begin = p.offsets.empty() ? 0 : p.offsets.front(), end = p.offsets.empty() ? p.m : p.offsets.back();
    for (int64_t r = 0; r < p.m; ++r) {
        const bool exists = p.with_rows && begin <= r && r < end;
        for (int64_t c = 0; c < p.k; ++c) ASSERT_EQ(p.row_q.at(r, c), exists ? q.at(r, c) : 0x5a) << r << ", " << c;
        for (int64_t b = 0; b < ColumnsProblem::blocks(p.k); ++b) {
            if (exists) ASSERT_EQ(p.row_scales.at(r, b), scales.at(r, b)) << r << ", " << b;
            else ASSERT_EQ(float_bits(p.row_scales.at(r, b)), 0x5a5a5a5au);
        }
    }
}

void expect_all(ColumnsProblem& p) {
    const int64_t cols = p.q.view().cols;
    if (p.offsets.empty()) return expect_columns(p, 0, 0, p.m, cols), expect_rows(p);
    int64_t col = 0;
    for (size_t g = 0; g + 1 < p.offsets.size(); ++g) {
        ASSERT_EQ(p.begins[1 + g], col) << "group " << g;
        const int64_t rows = p.offsets[g + 1] - p.offsets[g], padded = ColumnsProblem::blocks(rows) * 128;
        expect_columns(p, col, p.offsets[g], rows, padded);
        col += padded;
    }
    ASSERT_EQ(p.begins[p.offsets.size()], col);
    ASSERT_LE(col, cols);
    expect_columns(p, col, 0, 0, cols - col);
    expect_rows(p);
}

TEST(CpuQuantizeColumns, IsQuantizeRowsOfTheTransposeBitForBitAndWritesNothingElse) {
    std::mt19937 random(21);
    ThreadPool pool(2);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        ColumnsProblem p = test::random_columns(random);
        p.run([&](const QuantizeColumnsCall& call) { run_on_cpu(call, pool); });
        SCOPED_TRACE(p.name());
        ASSERT_TRUE(p.surroundings_intact());
        expect_all(p);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(CpuQuantizeColumns, TheLeastColumnsOfQHaveRoomForGroupsOfTheWorstSizes) {
    ThreadPool pool(1);
    for (const int64_t m : {1, 3, 257, 258, 259}) {
        std::vector<int32_t> offsets = {0, 1, 2, static_cast<int32_t>(std::min<int64_t>(m, 3)),
                                        static_cast<int32_t>(m)};
        for (int32_t& offset : offsets) offset = std::min(offset, static_cast<int32_t>(m));
        ColumnsProblem p(DType::BF16, m, 32, offsets, true, false, 5);
        p.run([&](const QuantizeColumnsCall& call) { run_on_cpu(call, pool); });
        expect_all(p);
    }
}

/// Numbers that no caller should pass: what is written stays within the matrices, and the sanitizers watch the loads.
TEST(CpuQuantizeColumns, NumbersThatBreakTheRulesStayWithinTheMatrices) {
    std::mt19937 random(22);
    ThreadPool pool(2);
    for (int i = 0; i < 20; ++i) {
        ColumnsProblem p(DType::F32, 300, 144, {0, 100, 200, 300}, true, false, 7);
        for (int32_t& offset : p.offsets) offset = static_cast<int32_t>(random());
        if (i == 0) p.offsets = {0, 300, 0, 300};  // more rows than there are
        p.run([&](const QuantizeColumnsCall& call) { run_on_cpu(call, pool); });
        EXPECT_TRUE(p.surroundings_intact());
        for (size_t g = 0; g < p.offsets.size(); ++g) EXPECT_LE(p.begins[1 + g], p.q.view().cols);
    }
}

TEST(CpuQuantizeColumns, TheNumberOfThreadsDoesNotMatter) {
    ColumnsProblem p(DType::BF16, 333, 272, {0, 10, 300}, true, false, 5);
    ThreadPool one(1), five(5);
    p.run([&](const QuantizeColumnsCall& call) { run_on_cpu(call, one); });
    const std::vector<uint8_t> by_one = p.written();
    p.run([&](const QuantizeColumnsCall& call) { run_on_cpu(call, five); });
    EXPECT_EQ(by_one, p.written());
}

}  // namespace
}  // namespace finegemm
