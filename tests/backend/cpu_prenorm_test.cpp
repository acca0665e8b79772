// The product before a norm on the CPU, against its definition. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/prenorm/arithmetic.h>

#include "support/prenorm.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

using test::PrenormCase;
using test::Random;

TEST(CpuPrenorm, RandomCallsAreWithinTheBoundAndWriteAllOfTheirSlicesAlone) {
    Random random(40);
    ThreadPool pool(2);
    double worst = 0;
    for (int64_t i = 0; i < test::random_cases(100); ++i) {
        PrenormCase p(random);
        run_on_cpu(p.call(), pool);
        ASSERT_EQ(p.faults(&worst), "") << "call " << i;
    }
    EXPECT_GT(worst, 1e-4) << "the bound says too little";
}

/// The two columns of bf16 that a number of B becomes.
struct Columns {
    uint16_t first, second;
    explicit Columns(float x)
        : first(static_cast<uint16_t>(tf32_pair(x).first >> 16)),
          second(static_cast<uint16_t>(tf32_pair(x).second >> 16)) {}
    double sum() const {
        return static_cast<double>(float_of_bf16(first)) + static_cast<double>(float_of_bf16(second));
    }
};

TEST(CpuPrenorm, BIsRoundedToElevenBitsAndItsColumnsAreExact) {
    Random random(41);
    const auto check = [](float x) {
        const Columns columns(x);
        const double wanted = test::tf32(static_cast<double>(x)), found = columns.sum();
        if (std::isnan(x)) return std::isnan(found);
        if (std::abs(wanted) < 0x1p-123) return std::abs(found - wanted) < 0x1p-133;  // the smallest number of bf16
        return found == wanted && (columns.second == 0 || ((columns.first ^ columns.second) & 0x8000) == 0);
    };
    for (int i = 0; i < 200'000; ++i) {
        const float x = float_of_bits(static_cast<uint32_t>(random.any(0, UINT32_MAX)));
        ASSERT_TRUE(check(x)) << x;
    }
    for (const float x :
         {0.0f, 1.0f, 0x1.002p0f, 0x1.006p0f, 0x1.ffep127f, 3.4e38f, INFINITY, 0x1p-149f, 0x1.004p-126f})
        EXPECT_TRUE(check(x) && check(-x)) << x;
    EXPECT_EQ(Columns(0x1.002p0f).sum(), 1.0) << "a tie, to even";
    EXPECT_EQ(Columns(0x1.006p0f).sum(), 0x1.008p0) << "a tie, to even";
}

/// An infinity of A is NaN where it meets a second column of zero; all else is as in one product.
TEST(CpuPrenorm, NanAndInfinityReachTheirRowOrColumnAlone) {
    Random random(42);
    ThreadPool pool(1);
    int infinite = 0, nan = 0;
    for (int i = 0; i < 60; ++i) {
        PrenormCase p(random, {9, 24, 128, random.any(1, 3)});
        const int64_t of_k = random.any(0, 127), row = random.any(0, 8), col = random.any(0, 23);
        const float odd = random.one_of({INFINITY, -INFINITY, static_cast<float>(NAN)});
        const bool in_a = random.one_in(2);
        if (in_a) p.a.at(row, of_k) = bf16_of_float(odd);
        else p.b.at(col, of_k) = odd;
        if (in_a && random.one_in(3)) p.a.at(row, of_k ^ 1) = bf16_of_float(-odd);
        run_on_cpu(p.call(), pool);
        for (int64_t m = 0; m < 9; ++m)
            for (int64_t n = 0; n <= 24; ++n) {
                const double wanted = p.truth(m, n).sum, found = n < 24 ? p.sum(m, n) : p.sum_of_squares(m);
                const bool alike = std::isnan(wanted)   ? std::isnan(found)
                                   : std::isinf(wanted) ? found == wanted || (in_a && n < 24 && std::isnan(found))
                                                        : std::isfinite(found);
                ASSERT_TRUE(alike) << p.text() << ": " << m << ", " << n << " is " << found << ", not " << wanted;
                nan += std::isnan(wanted), infinite += std::isinf(wanted);
            }
    }
    EXPECT_GT(nan, 100);
    EXPECT_GT(infinite, 100);
}

TEST(CpuPrenorm, SquaresAreSummedInTheOrderThatIsDocumented) {
    Random random(44);
    ThreadPool pool(1);
    for (int i = 0; i < 30; ++i) {
        PrenormCase p(random);
        run_on_cpu(p.call(), pool);
        for (int64_t m = 0; m < p.rows; ++m) {
            float sums[2][2] = {};  // by the half of a block, and by whether k is odd
            for (int64_t k = 0; k < p.k; ++k) {
                const float x = float_of_bf16(p.a.at(m, k));
                float& sum = sums[k % 64 / 32][k % 2];
                sum = std::fma(x, x, sum);
            }
            ASSERT_EQ(p.sqrsum.at(0, m), (sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1])) << p.text();
        }
    }
}

TEST(CpuPrenorm, BitsDoNotDependOnThreadsOrSlices) {
    Random random(43);
    PrenormCase one(random, {300, 24, 640, 1}, false);
    PrenormCase many(random, {300, 24, 640, 16}, false);
    for (int64_t m = 0; m < 300; ++m) std::copy_n(&one.a.at(m, 0), 640, &many.a.at(m, 0));
    for (int64_t n = 0; n < 24; ++n) std::copy_n(&one.b.at(n, 0), 640, &many.b.at(n, 0));
    ThreadPool alone(1), pool(4);
    run_on_cpu(one.call(), alone);
    run_on_cpu(many.call(), pool);
    for (int64_t m = 0; m < 300; ++m) {
        ASSERT_EQ(one.sum_of_squares(m), many.sum_of_squares(m));
        for (int64_t n = 0; n < 24; ++n) ASSERT_EQ(one.sum(m, n), many.sum(m, n));
    }
}

}  // namespace
}  // namespace finegemm
