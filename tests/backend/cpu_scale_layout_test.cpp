// Layouts of scales on the CPU, against their definition, element by element. Layer tests.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "ops/scale_layout/cpu.h"
#include "support/scale_layout.h"

namespace finegemm {
namespace {

using test::ScaleLayoutProblem;

/// The exponent by arithmetic on the value.
uint32_t exponent_of(uint32_t bits, bool power_of_two) {
    const float x = std::abs(float_of_bits(bits));
    if (!power_of_two) {
        if (!std::isfinite(x)) return 255;
        return x < std::numeric_limits<float>::min() ? 0 : static_cast<uint32_t>(std::ilogb(x) + 127);
    }
    if (!(x <= 0x1p127f)) return 254;
    for (int e = -126;; ++e)
        if (std::ldexp(1.0f, e) >= x) return static_cast<uint32_t>(e + 127);
}

/// The columns of scales that each word of the output takes, by groups of K; -1 for none.
std::vector<std::array<int64_t, 4>> columns_of(const ScaleLayoutProblem& p) {
    std::vector<std::array<int64_t, 4>> columns;
    int64_t next = 0, end = 0;
    for (const int32_t number : p.numbers) {
        const int64_t begin = (end + p.alignment - 1) / p.alignment * p.alignment;
        const int64_t k = p.form == ScaleGroupForm::KSizes ? number : number - begin;
        end = number;
        const int64_t scales = (k + p.scale_k - 1) / p.scale_k;
        for (int64_t i = 0; i < scales; ++i) {
            if (i % 4 == 0) columns.push_back({-1, -1, -1, -1});
            columns.back()[static_cast<size_t>(i % 4)] = next++;
        }
    }
    columns.resize(static_cast<size_t>(p.out_cols), {-1, -1, -1, -1});
    return columns;
}

std::vector<bool> rows_with_groups(const ScaleLayoutProblem& p) {
    std::vector<bool> grouped(static_cast<size_t>(p.rows), p.form != ScaleGroupForm::Rows);
    if (p.form != ScaleGroupForm::Rows) return grouped;
    int64_t end = 0;
    for (const int32_t number : p.numbers) {
        for (int64_t r = (end + p.alignment - 1) / p.alignment * p.alignment; r < number; ++r)
            grouped[static_cast<size_t>(r)] = true;
        end = number;
    }
    return grouped;
}

uint32_t wanted(const ScaleLayoutProblem& p, const std::vector<std::array<int64_t, 4>>& columns, int64_t matrix,
                int64_t r, int64_t c) {
    switch (p.transform) {
        case ScaleTransform::Copy: return p.in_at(matrix, r, c);
        case ScaleTransform::Round: return exponent_of(p.in_at(matrix, r, c), true) << 23;
        case ScaleTransform::Unpack: {
            const uint32_t byte = p.in_at(matrix, r, c / 4) >> 8 * (c % 4) & 0xff;
            const float x = byte == 0     ? 0.0f
                            : byte == 255 ? std::numeric_limits<float>::infinity()
                                          : std::ldexp(1.0f, static_cast<int>(byte) - 127);
            return float_bits(x);
        }
        case ScaleTransform::Pack: break;
    }
    uint32_t word = 0;
    for (int64_t b = 0; b < 4; ++b) {
        const bool of_k = p.form == ScaleGroupForm::KSizes || p.form == ScaleGroupForm::KPrefixSums;
        const int64_t col = of_k                 ? columns[static_cast<size_t>(c)][static_cast<size_t>(b)]
                            : 4 * c + b < p.cols ? 4 * c + b
                                                 : -1;
        if (col >= 0) word |= exponent_of(p.in_at(matrix, r, col), p.power_of_two) << 8 * b;
    }
    return word;
}

TEST(CpuScaleLayout, IsByDefinitionForEachElementAndWritesNothingElse) {
    std::mt19937 random(7);
    ThreadPool pool(2);
    for (int i = 0; i < 400; ++i) {
        ScaleLayoutProblem p(random);
        p.run([&](const ScaleLayoutCall& call) { run_on_cpu(call, pool); });
        const auto columns = columns_of(p);
        const std::vector<bool> grouped = rows_with_groups(p);
        for (int64_t matrix = 0; matrix < p.count; ++matrix)
            for (int64_t r = 0; r < p.rows; ++r)
                for (int64_t c = 0; c < p.out_cols; ++c)
                    ASSERT_EQ(p.out_at(matrix, r, c),
                              grouped[static_cast<size_t>(r)] ? wanted(p, columns, matrix, r, c) : 0)
                        << p.name() << " at " << matrix << ", " << r << ", " << c;
        ASSERT_TRUE(p.surroundings_intact()) << p.name();
    }
}

TEST(CpuScaleLayout, ScalesThatHaveNoGroupAreNotRead) {
    // Row 1 lies where no memory is.
    const float x[] = {4.0f, 2.0f};
    uint32_t out[] = {7, 7};
    const int32_t ends[] = {1};
    ThreadPool pool(1);
    run_on_cpu(ScaleLayoutCall{{{x, DType::F32, 2, 2, int64_t{1} << 40, 1, {}}, 1, 0},
                               {{out, DType::UE8M0x4, 2, 1, 1, 1, {}}, 1, 0},
                               {ScaleGroupForm::Rows, ends, 1, 128, 128, {}},
                               {}},
               pool);
    EXPECT_EQ(out[0], 129u | 128u << 8);
    EXPECT_EQ(out[1], 0u);
}

}  // namespace
}  // namespace finegemm
