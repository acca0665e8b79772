// Products without scales on the CPU backend, of each type: against the definition, in every grouping. Layer tests.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <fmt/format.h>

#include "ops/gemm/cpu.h"
#include "plan/elements.h"
#include "support/cpu.h"

namespace finegemm {
namespace {

using test::cpu_backend;

/// A row-major matrix of random values, or of zeros.
struct Values {
    DType dtype;
    int64_t rows, cols;
    std::vector<uint32_t> words;

    Values(DType type, int64_t rows_, int64_t cols_, uint32_t seed = 0) : dtype(type), rows(rows_), cols(cols_) {
        words.resize(static_cast<size_t>(rows * cols * size_of(type) + 3) / 4);
        if (seed == 0) return;
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (int64_t i = 0; i < rows * cols; ++i) set(i, normal(random));
    }
    void set(int64_t i, float x) {
        visit_codes(dtype, [&]<typename Type>(Type) {
            if constexpr (requires { Type::rounded(x); })
                reinterpret_cast<Type::Code*>(words.data())[i] = Type::rounded(x);
        });
    }
    double at(int64_t row, int64_t col) const {
        double value = 0;
        visit_codes(dtype, [&]<typename Type>(Type) {
            value = Type::value(reinterpret_cast<const Type::Code*>(words.data())[row * cols + col]);
        });
        return value;
    }
    Matrix view() { return {words.data(), dtype, rows, cols, cols, 1, {}}; }
    /// A copy whose columns are contiguous.
    Values by_columns() const {
        Values t(dtype, cols, rows);
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c) t.set(c * rows + r, static_cast<float>(at(r, c)));
        return t;
    }
    Matrix transposed() { return {words.data(), dtype, cols, rows, 1, cols, {}}; }
};

constexpr Numerics kAllNumerics[] = {Numerics::Fast, Numerics::Exact, Numerics::Hopper};

/// Calls body(type of A and B, type of D).
template <typename Body>
void for_each_types(const Body& body) {
    int seen = 0;
    for (const ElementType& of : kElementTypes)
        for (const DType d : of.results)
            if (is_unscaled(of) && find_type(d)) {
                SCOPED_TRACE(fmt::format("{}, D in {}", of.name, name_of(d)));
                body(of.dtype, d);
                ++seen;
            }
    EXPECT_GE(seen, 2);
}

/// Is D[row, col] within the bound of the sum over these k, plus what D had?
void expect_sum(const Values& a, int64_t a_row, const Values& b, int64_t b_row, int64_t begin, int64_t end, double d,
                DType type, double old = 0) {
    double exact = old, absolute = std::abs(old);
    for (int64_t k = begin; k < end; ++k) {
        const double product = a.at(a_row, k) * b.at(b_row, k);
        exact += product;
        absolute += std::abs(product);
    }
    const double sum = unscaled_sum_bound(absolute, end - begin);
    const double bound =
        sum + (std::abs(exact) + sum) * (find_type(type)->rounding.relative) + find_type(type)->rounding.smallest;
    ASSERT_LE(std::abs(d - exact), bound) << a_row << ", " << b_row;
}

TEST(CpuUnscaled, KeepsTheBoundOfTheDefinition) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 8, 8}, {65, 136, 264}, {300, 40, 1000}})
        for_each_types([&, m = m, n = n, k = k](DType of, DType type) {
            for (const Numerics numerics : kAllNumerics) {
                Values a(of, m, k, 1), b(of, n, k, 2), d(type, m, n);
                cpu_backend(2)->gemm({GemmArgs{a.view(), {}, b.view(), {}, d.view()}, {.numerics = numerics}});
                for (int64_t r = 0; r < m; ++r)
                    for (int64_t c = 0; c < n; ++c) expect_sum(a, r, b, c, 0, k, d.at(r, c), type);
            }
        });
}

TEST(CpuUnscaled, GroupsOfRowsTakeTheirOwnB) {
    constexpr int64_t kM = 50, kN = 24, kK = 136;
    const std::vector<int32_t> offsets = {0, 20, 20, 45};
    for_each_types([&](DType of, DType type) {
        Values a(of, kM, kK, 3), b(of, 3 * kN, kK, 4), d(type, kM, kN);
        for (int64_t i = 0; i < kM * kN; ++i) d.set(i, 7);
        Matrix of_one = b.view();
        of_one.rows = kN;
        const Groups groups{.data = offsets.data(), .size = 4};
        cpu_backend(2)->gemm({GroupedGemmArgs{{a.view()}, {}, {of_one, 3, kN * kK}, {}, {d.view()}, groups}, {}});
        for (int64_t r = 0; r < kM; ++r)
            for (int64_t c = 0; c < kN; ++c) {
                if (r >= 45) ASSERT_EQ(d.at(r, c), 7) << "a row without a group";
                else expect_sum(a, r, b, (r < 20 ? 0 : 2) * kN + c, 0, kK, d.at(r, c), type);
            }
    });
}

TEST(CpuUnscaled, GroupsOfKHaveTheirOwnD) {
    constexpr int64_t kM = 12, kN = 16, kK = 512;
    const std::vector<int32_t> offsets = {0, 128, 128, 512};
    for_each_types([&](DType of, DType type) {
        for (const bool accumulate : {false, true}) {
            if (accumulate && type != DType::F32) continue;
            Values a(of, kM, kK, 5), b(of, kN, kK, 6), d(type, 3 * kM, kN, 7), old = d;
            Matrix of_one = d.view();
            of_one.rows = kM;
            cpu_backend(2)->gemm({KGroupedGemmArgs{.a = a.view(),
                                                   .sfa = {},
                                                   .b = b.view(),
                                                   .sfb = {},
                                                   .d = {of_one, 3, kM * kN},
                                                   .offsets = offsets.data(),
                                                   .groups = 3},
                                  {.accumulate = accumulate}});
            for (int64_t g = 0; g < 3; ++g)
                for (int64_t r = 0; r < kM; ++r)
                    for (int64_t c = 0; c < kN; ++c)
                        expect_sum(a, r, b, c, offsets[static_cast<size_t>(g)], offsets[static_cast<size_t>(g) + 1],
                                   d.at(g * kM + r, c), type, accumulate ? old.at(g * kM + r, c) : 0);
        }
    });
}

TEST(CpuUnscaled, ColumnsGiveTheBitsOfRows) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 8, 8}, {65, 136, 264}, {300, 40, 136}})
        for_each_types([&, m = m, n = n, k = k](DType of, DType type) {
            for (const Numerics numerics : kAllNumerics) {
                Values a(of, m, k, 1), b(of, n, k, 2), d(type, m, n), other(type, m, n);
                Values at = a.by_columns(), bt = b.by_columns();
                const GemmOptions options{.numerics = numerics};
                cpu_backend(2)->gemm({GemmArgs{a.view(), {}, b.view(), {}, d.view()}, options});
                for (const auto& [of_a, of_b] : {std::pair{a.view(), bt.transposed()},
                                                 {at.transposed(), bt.transposed()},
                                                 {at.transposed(), b.view()}}) {
                    cpu_backend(2)->gemm({GemmArgs{of_a, {}, of_b, {}, other.view()}, options});
                    EXPECT_EQ(d.words, other.words);
                }
            }
        });
}

TEST(CpuUnscaled, GroupsTakeColumnsAsTheyTakeRows) {
    constexpr int64_t kM = 24, kN = 16, kK = 384;
    const std::vector<int32_t> rows = {0, 10, 10, 24}, blocks = {0, 128, 128, 384};
    for_each_types([&](DType of, DType type) {
        Values a(of, kM, kK, 1), b(of, kN, kK, 2), b3(of, 3 * kK, kN, 3), d(type, 3 * kM, kN);
        Values at = a.by_columns(), bt = b.by_columns();
        Matrix b_of_one = b3.view(), d_of_one = d.view();
        b_of_one = {b_of_one.data, of, kN, kK, 1, kN, {}};
        d_of_one.rows = kM;
        const Groups groups{.data = rows.data(), .size = 4};
        cpu_backend(2)->gemm({GroupedGemmArgs{{a.view()}, {}, {b_of_one, 3, kN * kK}, {}, {d_of_one}, groups}, {}});
        for (int64_t g = 0; g < 3; ++g) {
            Values of_group(of, kN, kK);
            for (int64_t n = 0; n < kN; ++n)
                for (int64_t k = 0; k < kK; ++k) of_group.set(n * kK + k, static_cast<float>(b3.at(g * kK + k, n)));
            for (int64_t r = rows[static_cast<size_t>(g)]; r < rows[static_cast<size_t>(g) + 1]; ++r)
                for (int64_t c = 0; c < kN; ++c) expect_sum(a, r, of_group, c, 0, kK, d.at(r, c), type);
        }
        KGroupedGemmArgs args{.a = at.transposed(),
                              .sfa = {},
                              .b = bt.transposed(),
                              .sfb = {},
                              .d = {d_of_one, 3, kM * kN},
                              .offsets = blocks.data(),
                              .groups = 3};
        cpu_backend(2)->gemm({args, {}});
        for (int64_t g = 0; g < 3; ++g)
            for (int64_t r = 0; r < kM; ++r)
                for (int64_t c = 0; c < kN; ++c)
                    expect_sum(a, r, b, c, blocks[static_cast<size_t>(g)], blocks[static_cast<size_t>(g) + 1],
                               d.at(g * kM + r, c), type);
    });
}

TEST(CpuUnscaled, AddsInTheOrderThatIsDocumented) {
    // Within 128 of K one after the other: 2^24 + 1 - 2^24 is 0 in f32, and a block's sum is added whole.
    for_each_types([](DType of, DType type) {
        Values a(of, 1, 136), b(of, 8, 136), d(type, 1, 8);
        for (int64_t k : {0, 1, 2, 128}) a.set(k, k == 2 ? -4096 : k == 0 ? 4096 : 1), b.set(k, k % 2 == 0 ? 4096 : 1);
        b.set(128, 3);
        cpu_backend(1)->gemm({GemmArgs{a.view(), {}, b.view(), {}, d.view()}, {}});
        EXPECT_EQ(d.at(0, 0), 3);
        cpu_backend(1)->gemm({GemmArgs{a.view(), {}, b.view(), {}, d.view()}, {.numerics = Numerics::Exact}});
        EXPECT_EQ(d.at(0, 0), 4);
    });
}

TEST(CpuUnscaled, NanAndInfinityComeThrough) {
    for_each_types([](DType of, DType) {
        Values a(of, 2, 8, 8), b(of, 8, 8, 9), d(DType::F32, 2, 8);
        for (int64_t i = 0; i < 16; ++i) a.set(i, 1);
        for (int64_t i = 0; i < 64; ++i) b.set(i, 1);
        a.set(3, std::numeric_limits<float>::infinity());
        b.set(8 + 3, std::numeric_limits<float>::quiet_NaN());
        cpu_backend(1)->gemm({GemmArgs{a.view(), {}, b.view(), {}, d.view()}, {}});
        EXPECT_TRUE(std::isinf(d.at(0, 0)) && std::isnan(d.at(0, 1)) && std::isnan(d.at(1, 1)));
        EXPECT_EQ(d.at(1, 0), 8);
    });
}

}  // namespace
}  // namespace finegemm
