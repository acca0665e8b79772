// Routing on the CPU, beside its definition. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/quantize/cpu.h"
#include "ops/routing/cpu.h"
#include "support/error_of.h"
#include "support/routing.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::RouteProblem;
using test::RowsProblem;

/// What the choices of each expert are, in the order of tokens.
std::vector<std::vector<int32_t>> choices_of(const RouteProblem& p) {
    std::vector<std::vector<int32_t>> of(static_cast<size_t>(p.experts));
    for (int64_t t = 0; t < p.tokens; ++t)
        for (int64_t c = 0; c < p.k; ++c) {
            int64_t id = p.ids[static_cast<size_t>(t * p.ids_stride + c)];
            if (!p.wide) id = static_cast<int32_t>(id);
            if (id >= p.first && id < p.first + p.experts)
                of[static_cast<size_t>(id - p.first)].push_back(static_cast<int32_t>(t * p.k + c));
        }
    return of;
}

TEST(CpuRoute, RowsOfAnExpertAreItsChoicesInTheOrderOfTokens) {
    test::Random random(55);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        const RouteProblem p(random);
        const auto found = p.run([&](const RouteCall& call) { run_on_cpu(call, pool); });
        std::vector<int32_t> inverse(static_cast<size_t>(p.tokens * p.k), -1);
        const bool masked = p.form == GroupForm::Masked, aligned = !masked && p.form != GroupForm::Offsets;
        int64_t end = 0, expert = 0;
        for (const auto& choices : choices_of(p)) {
            const int64_t unit = aligned ? p.alignment : 1;
            const int64_t begin = masked ? expert * p.rows : std::min((end + unit - 1) / unit * unit, p.rows);
            const int64_t limit = masked ? begin + p.rows : p.rows;
            end = begin;
            for (const int32_t choice : choices) {
                if (end >= limit) break;
                if (p.permuted) {
                    ASSERT_EQ(found.permutation[static_cast<size_t>(end)], choice) << p.name();
                }
                if (p.form == GroupForm::Indices) {
                    ASSERT_EQ(found.numbers[static_cast<size_t>(end)], expert);
                }
                inverse[static_cast<size_t>(choice)] = static_cast<int32_t>(end++);
            }
            const auto number = static_cast<int64_t>(found.numbers[static_cast<size_t>(expert)]);
            if (masked) {
                ASSERT_EQ(number, end - begin) << p.name();
            }
            if (p.form == GroupForm::PrefixSums) {
                ASSERT_EQ(number, end) << p.name();
            }
            if (p.form == GroupForm::Offsets) {
                ASSERT_EQ(number, begin) << p.name();
            }
            ++expert;
        }
        for (int64_t t = 0; t < p.tokens; ++t)
            for (int64_t c = 0; c < p.k; ++c)
                ASSERT_EQ(found.inverse[static_cast<size_t>(t * p.inverse_stride + c)],
                          inverse[static_cast<size_t>(t * p.k + c)])
                    << p.name();
        if (p.form == GroupForm::Offsets) {
            ASSERT_EQ(found.numbers[static_cast<size_t>(p.experts)], end);
        }
        if (masked || !p.permuted) continue;
        const auto rows_of_none = std::count(found.permutation.begin(), found.permutation.begin() + p.rows, kNoRow);
        EXPECT_EQ(rows_of_none, p.rows - (p.tokens * p.k - std::ranges::count(inverse, -1))) << "padding";
    }
}

TEST(CpuPermute, ARowIsWhatQuantizeRowsMakesOfItsToken) {
    test::Random random(56);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        const RowsProblem p(random);
        std::vector<uint8_t> codes(static_cast<size_t>(p.tokens * p.cols));
        std::vector<float> scales(static_cast<size_t>(p.tokens * p.blocks()));
        const QuantizeOptions options{.power_of_two_scales = p.power_of_two};
        run_on_cpu(QuantizeCall{ScaleShape::Rows,
                                {p.x.data(), DType::BF16, p.tokens, p.cols, p.x_stride},
                                {codes.data(), DType::E4M3, p.tokens, p.cols, p.cols},
                                {scales.data(), DType::F32, p.tokens, p.blocks(), p.blocks()},
                                options},
                   pool);
        const auto found = p.permute(true, DType::E4M3, 0, [&](const PermuteCall& call) { run_on_cpu(call, pool); });
        for (int64_t i_choice = 0; i_choice < p.tokens * p.k; ++i_choice) {
            const int64_t row = p.inverse[static_cast<size_t>(i_choice)], t = i_choice / p.k;
            if (row < 0 || row >= p.stacks * p.rows) continue;
            for (int64_t c = 0; c < p.cols; ++c)
                ASSERT_EQ(found.q[static_cast<size_t>(row * p.q_stride + c)],
                          codes[static_cast<size_t>(t * p.cols + c)])
                    << p.name();
            const int64_t matrix = row / p.rows, r = row % p.rows, pitch = p.rows + 3;
            for (int64_t b = 0; b < p.blocks(); ++b) {
                const int64_t at = p.mn_major ? b * pitch + r : r * p.blocks() + b;
                ASSERT_EQ(found.scales[static_cast<size_t>(matrix * pitch * p.blocks() + at)],
                          float_bits(scales[static_cast<size_t>(t * p.blocks() + b)]))
                    << p.name();
            }
        }
    }
}

TEST(CpuCombine, AddsUpInTheOrderOfChoicesAndSeesNoRowThatNobodyHas) {
    // Two tokens of three choices, rows of 8 columns: the second one has one row, and a NaN lies between them.
    const uint16_t one = 0x3f80, nan = 0x7fc0;
    std::vector<uint16_t> y(4 * 8, one), out(2 * 8, nan);
    std::fill_n(y.begin() + 8, 8, nan);
    const std::vector<int32_t> inverse = {0, 3, 2, -1, 2, 4};
    const std::vector<float> weights = {0x1p24f, 1, -0x1p24f, NAN, 0.5f, NAN};
    const CombineOptions options;
    ThreadPool pool(1);
    run_on_cpu(CombineCall{{.y = {{y.data(), DType::BF16, 4, 8, 8}},
                            .inverse = {inverse.data(), DType::I32, 2, 3, 3},
                            .weights = {weights.data(), DType::F32, 2, 3, 3},
                            .out = {out.data(), DType::BF16, 2, 8, 8}},
                           options},
               pool);
    EXPECT_EQ(out[0], 0) << "2^24 + 1 is 2^24 before 2^24 is taken away";
    EXPECT_EQ(out[8], 0x3f00) << "half of the only row";
}

TEST(CheckRouting, NamesWhatDoesNotFit) {
    std::vector<int32_t> ids = {4, 5, 4, 9, 4, -1}, inverse(6), numbers(2);
    const RouteOptions options;
    const auto said = [&](GroupForm form, int64_t rows) -> std::string {
        try {
            check_numbers(RouteCall{{.ids = {ids.data(), DType::I32, 3, 2, 2},
                                     .inverse = {inverse.data(), DType::I32, 3, 2, 2},
                                     .numbers = {numbers.data(), DType::I32, 1, 2, 2},
                                     .form = form,
                                     .experts = 2,
                                     .first = 4,
                                     .rows = rows,
                                     .alignment = 4},
                                    options});
        } catch (const Error& e) {
            return e.what();
        }
        return "";
    };
    EXPECT_EQ(said(GroupForm::Masked, 3), "");
    EXPECT_EQ(
        said(GroupForm::Masked, 2),
        "ids: choose expert 4 3 times, but there are 2 rows for each expert; pass memory with more rows, or limit "
        "what is chosen");
    EXPECT_EQ(said(GroupForm::PrefixSums, 5), "");
    EXPECT_EQ(said(GroupForm::PrefixSums, 4),
              "ids: choose so often that the rows of expert 5 end at 5, but there are 4 rows; pass memory with more "
              "rows: T * k + E * (alignment - 1) are always enough");
    EXPECT_EQ(said(GroupForm::Offsets, 4), "");
}

TEST(CheckRouting, NamesARowThatDoesNotExistOrHasTwoTokens) {
    std::vector<int32_t> inverse = {0, 1, 2, -1};
    const PermuteOptions options;
    const auto said = [&](int64_t rows) -> std::string {
        try {
            check_numbers(PermuteCall{{.x = {nullptr, DType::BF16, 2, 8, 8},
                                       .inverse = {inverse.data(), DType::I32, 2, 2, 2},
                                       .q = {{nullptr, DType::BF16, rows, 8, 8}}},
                                      options});
        } catch (const Error& e) {
            return e.what();
        }
        return "";
    };
    EXPECT_EQ(said(3), "");
    EXPECT_EQ(said(2), "inverse: [1, 0] is 2, must be from 0 to 1, or -1 for none; look at what computed it");
    inverse[2] = 1;
    EXPECT_EQ(said(3), "inverse: [1, 0] is 1, as another one is, but a row has one token; look at what computed it");
}

}  // namespace
}  // namespace finegemm
