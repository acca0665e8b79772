// The CPU's GEMM with a scale for each row of B, into bf16, into f32, and added to f32.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "gemm_reference.h"
#include "ops/gemm/cpu.h"

namespace finegemm::row_scales_test {
namespace {

using test::Buffer;
using test::Problem;

constexpr Numerics kAllNumerics[] = {Numerics::Fast, Numerics::Exact, Numerics::Hopper};

void run(const GemmArgs& args, Numerics numerics, bool accumulate = false) {
    ThreadPool pool(2);
    cpu_gemm({args, {.numerics = numerics, .accumulate = accumulate}}, pool);
}

/// A problem with D in f32, too.
struct F32Problem : Problem {
    Buffer<float> d32;

    F32Problem(int64_t m_, int64_t n_, int64_t k_, uint32_t seed, int64_t padding = 0)
        : Problem(m_, n_, k_, seed, seed % 2 == 1, padding, true), d32(DType::F32, m_, n_, padding / 4) {}
    GemmArgs f32_args() {
        GemmArgs all = args();
        all.d = d32.view();
        return all;
    }
    void fill_d(float value) {
        for (int64_t r = 0; r < m; ++r)
            for (int64_t c = 0; c < n; ++c) d32.at(r, c) = value;
    }
};

struct Shape {
    int64_t m, n, k, padding;
};
constexpr Shape kShapes[] = {
    {1, 8, 16, 0}, {7, 24, 144, 16}, {64, 128, 256, 0}, {33, 264, 400, 32}, {253, 136, 144, 0}};

TEST(RowScales, KeepTheBoundInEachNumericsAndWriteNothingElse) {
    uint32_t seed = 0;
    for (const auto& [m, n, k, padding] : kShapes) {
        F32Problem p(m, n, k, ++seed, padding);
        const test::Sums sums = test::sums_of(p);
        for (const Numerics numerics : kAllNumerics) {
            run(p.args(), numerics);
            for (const float old : {0.0f, 1e4f}) {
                p.fill_d(old);
                run(p.f32_args(), numerics, old != 0);
                for (int64_t r = 0; r < m; ++r)
                    for (int64_t c = 0; c < n; ++c) {
                        const auto i = static_cast<size_t>(r * n + c);
                        const double bound = sum_bound(sums.absolute[i], Problem::blocks(k), numerics);
                        const double exact = sums.exact[i] + old;
                        // One rounding to f32 of what is within the bound.
                        ASSERT_LE(std::abs(p.d32.at(r, c) - exact), bound + (std::abs(exact) + bound) * 0x1p-24)
                            << m << "x" << n << "x" << k << ": " << r << ", " << c << ", old " << old;
                        ASSERT_LE(std::abs(float_of_bf16(p.d.at(r, c)) - sums.exact[i]),
                                  error_bound(sums.absolute[i], sums.exact[i], Problem::blocks(k), numerics));
                    }
            }
            EXPECT_TRUE(p.d32.surroundings_intact() && p.d.surroundings_intact());
        }
    }
}

TEST(RowScales, ThatAreEqualInABlockGiveTheBitsOfOneForTheBlock) {
    Problem blocks(40, 264, 400, 5), rows(40, 264, 400, 5, false, 0, true);
    for (int64_t r = 0; r < 264; ++r) {
        for (int64_t k = 0; k < 400; ++k) rows.b.at(r, k) = blocks.b.at(r, k);
        for (int64_t kb = 0; kb < 4; ++kb) rows.sfb.at(r, kb) = blocks.sfb.at(r / 128, kb);
    }
    for (int64_t r = 0; r < 40; ++r)
        for (int64_t kb = 0; kb < 4; ++kb) rows.sfa.at(r, kb) = blocks.sfa.at(r, kb);
    for (const Numerics numerics : kAllNumerics) {
        const GemmOptions one_order{.numerics = numerics, .batch_invariant = true};  // as all kernels for rows have it
        ThreadPool pool(2);
        cpu_gemm({blocks.args(), one_order}, pool);
        cpu_gemm({rows.args(), one_order}, pool);
        for (int64_t r = 0; r < 40; ++r)
            for (int64_t c = 0; c < 264; ++c) ASSERT_EQ(rows.d.at(r, c), blocks.d.at(r, c)) << r << ", " << c;
    }
}

TEST(RowScales, ExactSumsAreRoundedToF32Once) {
    // 1 + 2^-24 is a tie between two floats, 2^-40 above it is not; 1 is what D had, the rest is the sum.
    F32Problem p(1, 8, 256, 2);
    test::fill_with_zeros(p);
    p.a.at(0, 0) = p.b.at(0, 0) = p.a.at(0, 128) = p.b.at(0, 128) = e4m3_of_float(1);
    p.sfb.at(0, 0) = p.sfb.at(0, 1) = 1;
    p.sfa.at(0, 0) = 0x1p-24f;
    p.sfa.at(0, 1) = 0x1p-40f;
    p.fill_d(1);
    run(p.f32_args(), Numerics::Exact, true);
    EXPECT_EQ(p.d32.at(0, 0), 1 + 0x1p-23f);
    EXPECT_EQ(p.d32.at(0, 1), 1);
}

TEST(RowScales, ZeroKWritesZerosOrLeavesWhatIsAddedTo) {
    F32Problem p(3, 16, 0, 1);
    for (const Numerics numerics : kAllNumerics) {
        p.fill_d(-0.0f);
        p.d32.at(1, 1) = std::numeric_limits<float>::quiet_NaN();
        run(p.f32_args(), numerics, true);
        EXPECT_TRUE(std::signbit(p.d32.at(0, 0))) << "-0 would become +0 if it were added to";
        EXPECT_TRUE(std::isnan(p.d32.at(1, 1)));
        run(p.f32_args(), numerics);
        EXPECT_EQ(float_bits(p.d32.at(0, 0)) | float_bits(p.d32.at(1, 1)), 0u);
    }
}

}  // namespace
}  // namespace finegemm::row_scales_test
