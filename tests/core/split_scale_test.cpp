// Scales in parts for the tensor cores.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include <finegemm/gemm/split_scale.h>

namespace finegemm {
namespace {

float random_float(std::mt19937& random, int least, int most) {
    std::uniform_real_distribution<float> mantissa(1, 2);
    std::uniform_int_distribution<int> exponent(least, most);
    return (random() % 2 ? -1.0f : 1.0f) * std::ldexp(mantissa(random), exponent(random));
}

/// What the tensor cores would add without any rounding: each number of a row by its like.
double dot(const SplitScale& a, const SplitScale& b) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
        const auto low = [](uint32_t word) { return double{float_of_bits(word << 16)}; };
        const auto high = [](uint32_t word) { return double{float_of_bits(word & 0xffff0000u)}; };
        sum += low(a.word[i]) * low(b.word[i]) + high(a.word[i]) * high(b.word[i]);
    }
    return sum;
}

TEST(ScaleParts, AreThreeBf16NumbersThatMakeTheScale) {
    std::mt19937 random(1);
    for (int i = 0; i < 100000; ++i) {
        const float x = i < 50000 ? random_float(random, -109, 127) : random_float(random, -20, 4);
        const auto [high, middle, low] = scale_parts(x);
        for (const float part : {high, middle, low}) ASSERT_EQ(float_bits(part) & 0xffffu, 0u) << x;
        ASSERT_EQ(double{high} + middle + low, double{x});
    }
}

TEST(ScaleParts, LackWhatIsBelowTheSmallestBf16Number) {
    std::mt19937 random(4);
    for (int i = 0; i < 10000; ++i) {
        const float x = random_float(random, -149, -110);
        const auto [high, middle, low] = scale_parts(x);
        ASSERT_LT(std::abs(double{high} + middle + low - x), 0x1p-133) << x;
    }
}

TEST(ScaleParts, OfWhatIsNotFiniteHaveANaN) {
    for (const float x : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), float_of_bits(0x7f800001)}) {
        const auto [high, middle, low] = scale_parts(x);
        EXPECT_TRUE(std::isnan(high + middle + low)) << x;
    }
}

TEST(SplitScales, HaveTheProductAsTheirDotProduct) {
    std::mt19937 random(2);
    double largest = 0;
    for (int i = 0; i < 100000; ++i) {
        const float x = random_float(random, -40, 40), y = random_float(random, -40, 40);
        const double product = double{x} * y;
        const double error = std::abs(dot(split_scale_of_a(x), split_scale_of_b(y)) / product - 1);
        ASSERT_LT(error, 0x1p-30) << x << " * " << y;
        largest = std::max(largest, error);
    }
    EXPECT_GT(largest, 0) << "one of the nine products is left out";
}

TEST(SplitScales, OfPowersOfTwoAreExact) {
    for (int i = -60; i <= 60; i += 3)
        for (int j = -60; j <= 60; j += 5)
            EXPECT_EQ(dot(split_scale_of_a(std::ldexp(1.0f, i)), split_scale_of_b(std::ldexp(1.0f, j))),
                      std::ldexp(1.0, i + j));
}

}  // namespace
}  // namespace finegemm
