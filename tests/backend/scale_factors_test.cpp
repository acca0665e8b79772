// The model of the tensor cores that multiply scales: against the hardware's bits, and against what docs/numerics.md
// states.
#include "ops/gemm/cpu_scale_factors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <vector>

#include <finegemm/gemm/split_scale.h>

#include "ops/gemm/cpu.h"

namespace finegemm {
namespace {

double truncated(double x, int unit) { return std::ldexp(std::trunc(std::ldexp(x, -unit)), unit); }

/// One wgmma of bf16 numbers, as docs/numerics.md states it for factors.
float factor(float sfa, float sfb) {
    const SplitScale a = split_scale_of_a(sfa), b = split_scale_of_b(sfb);
    const auto numbers = [](const SplitScale& row) {
        std::vector<float> x;
        for (const uint32_t word : row.word)
            for (const uint32_t bits : {word << 16, word >> 16 << 16}) x.push_back(float_of_bits(bits));
        return x;
    };
    const auto exponent = [](float x) { return std::max(std::ilogb(x), -126); };
    struct Addend {
        double value;
        int exponent;
    };
    std::vector<Addend> addends;
    for (size_t i = 0; i < 8; ++i) {
        const float x = numbers(a)[i], y = numbers(b)[i];
        if (!std::isfinite(x) || !std::isfinite(y)) return NAN;
        if (x != 0 && y != 0) addends.push_back({double{x} * y, exponent(x) + exponent(y)});
    }
    int largest = -133;
    for (const Addend& x : addends) largest = std::max(largest, x.exponent);
    double total = 0;
    for (const Addend& x : addends) total += truncated(x.value, largest - 25);
    if (total == 0) return 0;
    return static_cast<float>(truncated(total, std::max(std::ilogb(total) - 23, -149)));
}

/// Pairs of scales, and what wgmma.m64n128k16 made of their parts on an H200 (docs/numerics.md, "Scale products"):
/// moderate ones, with signs, small ones, tiny ones times moderate and times large ones, large ones, any bits.
struct RecordedFactors {
    uint32_t a[64], b[64], factor[64 * 64];
};

TEST(ScaleFactors, AreThoseOfTheHardware) {
    std::ifstream file(FINEGEMM_TEST_DIR "/backend/data/factors_h200.bin", std::ios::binary);
    std::vector<RecordedFactors> all(7);
    const auto bytes = static_cast<std::streamsize>(sizeof all[0] * all.size());
    ASSERT_TRUE(file.read(reinterpret_cast<char*>(all.data()), bytes));
    int64_t rounded = 0, infinite = 0, nan = 0, subnormal = 0;
    for (const RecordedFactors& x : all)
        for (size_t i = 0; i < std::size(x.factor); ++i) {
            const float a = float_of_bits(x.a[i / 64]), b = float_of_bits(x.b[i % 64]);
            const float hardware = float_of_bits(x.factor[i]);
            for (const float model : {wgmma_factor(factor_operand(a), factor_operand(b)), factor(a, b)}) {
                if (std::isnan(hardware)) ASSERT_TRUE(std::isnan(model)) << a << " * " << b;
                else ASSERT_EQ(model, hardware) << a << " * " << b;  // of zeros the sign is lost
            }
            rounded += hardware == a * b;
            infinite += std::isinf(hardware), nan += std::isnan(hardware);
            subnormal += std::fpclassify(hardware) == FP_SUBNORMAL;
        }
    EXPECT_LT(rounded, 7 * 64 * 64 * 2 / 3) << "often a product that is rounded to nearest is another one";
    EXPECT_GT(infinite, 100);
    EXPECT_GT(nan, 100);
    EXPECT_GT(subnormal, 100);
}

TEST(ScaleFactors, AreWithinTheirBound) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> mantissa(1, 2);
    double largest = 0;
    for (int i = 0; i < 200000; ++i) {
        const float a = mantissa(random), b = mantissa(random);
        const float model = wgmma_factor(factor_operand(a), factor_operand(b));
        ASSERT_EQ(model, factor(a, b));
        largest = std::max(largest, 1 - model / (double{a} * b));
    }
    EXPECT_LE(largest, kFactorRoundings * 0x1p-24);
    EXPECT_GT(largest, kFactorRoundings * 0x1p-24 / 2) << "a bound that is far off";
}

}  // namespace
}  // namespace finegemm
