// SwiGLU: its exponential and the whole rule against doubles, and what is neither small nor a number.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include <finegemm/quantize/swiglu.h>

#include "ops/quantize/cpu_math.h"

namespace finegemm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

float value(float gate, float up, const SwigluRule& rule = {}, float weight = 1) {
    return swiglu_value<HostMath>(gate, up, rule, weight);
}

TEST(Activation, ExpIsWithinTwoUnitsInTheLastPlace) {
    double most = 0;
    for (const uint32_t sign : {0u, 1u << 31})
        for (uint32_t bits = 0; bits < float_bits(87.0f); bits += 3001) {
            const float z = float_of_bits(sign | bits);
            if (z > 64) continue;
            const double right = std::exp(-static_cast<double>(z)), unit = std::exp2(std::floor(std::log2(right)) - 23);
            most = std::fmax(most, std::abs(exp_of_negative<HostMath>(z) - right) / unit);
        }
    EXPECT_LE(most, 2);
    EXPECT_GT(most, 0.5) << "no polynomial of floats rounds right";
}

TEST(Activation, ASigmoidBecomesZeroWhereNoDeviceCanDoubt) {
    double nearest = 1;  // 1 + e^-z to 2^126: the hardware's reciprocal of a neighbour of that might not be zero
    for (float z = -87.3f; z > -87.4f; z = std::nextafter(z, -88.0f)) {
        const float sum = 1 + exp_of_negative<HostMath>(z);
        nearest = std::fmin(nearest, std::abs(sum / 0x1p126 - 1));
        EXPECT_EQ(sigmoid<HostMath>(z) == 0, sum > 0x1p126f) << z;
    }
    EXPECT_GT(nearest, 16 * 0x1p-23);
    EXPECT_EQ(sigmoid<HostMath>(-1e30f), 0);
    EXPECT_LE(1 + exp_of_negative<HostMath>(-88.0f), 0x1p127f);
}

TEST(Activation, ASigmoidNearZeroIsTheSameWithoutClamps) {
    for (const uint32_t sign : {0u, 1u << 31})
        for (uint32_t bits = 0; bits <= float_bits(kNearZero); bits += 1999) {
            const float z = float_of_bits(sign | bits);
            ASSERT_EQ((sigmoid<HostMath, true>(z)), sigmoid<HostMath>(z)) << z;
        }
    EXPECT_EQ((sigmoid<HostMath, true>(kNearZero)), sigmoid<HostMath>(kNearZero));
    EXPECT_EQ((sigmoid<HostMath, true>(-kNearZero)), sigmoid<HostMath>(-kNearZero));
}

TEST(Activation, IsTheFormulaWithinItsBoundForAnyRule) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const SwigluRule rule : {SwigluRule{}, {.limit = 7, .slope = 1.702f, .offset = 1}, {.limit = 0.5f}})
        for (int i = 0; i < 20'000; ++i) {
            const float size = std::ldexp(1.0f, i % 12 - 5), g = size * normal(random), u = size * normal(random),
                        w = normal(random);
            const double gate = std::fmin(g, rule.limit);
            const double up = std::fmin(std::fmax(u, -rule.limit), rule.limit);
            const double z = static_cast<double>(rule.slope) * gate, right = gate / (1 + std::exp(-z)) * w;
            // In halves of units: exp has four, z as many as z is, 1 + e and each operation behind it one.
            const double bound = std::abs(right) * (std::abs(up) + rule.offset) * (std::abs(z) + 10) * 0x1p-24;
            if (z < -87) continue;
            ASSERT_NEAR(value(g, u, rule, w), right * (up + rule.offset), bound) << g << ", " << u << ", " << w;
        }
}

TEST(Activation, KeepsNaNAndTakesWhatIsHugeForWhatItIs) {
    const SwigluRule clamped{.limit = 7};
    for (const SwigluRule& rule : {SwigluRule{}, clamped}) {
        EXPECT_TRUE(std::isnan(value(kNaN, 1, rule)));
        EXPECT_TRUE(std::isnan(value(1, kNaN, rule)));
        EXPECT_TRUE(std::isnan(value(1, 1, rule, kNaN)));
        EXPECT_EQ(value(-1e30f, 2, rule), 0) << "and not what -1e30 * e^-87 is";
        EXPECT_EQ(value(0, 2, rule), 0);
    }
    EXPECT_EQ(value(1e30f, 2), 2e30f);
    EXPECT_EQ(value(kInfinity, 2), kInfinity);
    EXPECT_EQ(value(kInfinity, kInfinity, clamped), value(7, 7));
    EXPECT_EQ(value(2, -kInfinity, clamped), value(2, -7));
    EXPECT_EQ(value(-30, 1, clamped), value(-30, 1)) << "gates are clamped from above alone";
    EXPECT_NE(value(-30, 1), 0);
}

TEST(Activation, MultipliesByTheWeightBeforeItRoundsToBf16) {
    const float exact = value(1.25f, 3, {}, 0.3f), rounded = value(1.25f, 3, {.to_bf16 = 1}, 0.3f);
    EXPECT_NE(exact, rounded);
    EXPECT_EQ(rounded, float_of_bf16(bf16_of_float(exact)));
}

TEST(Activation, InterleavedColumnsAreEightGatesAndEightUpsInTurn) {
    for (uint32_t i = 0; i < 64; ++i) {
        EXPECT_EQ(gate_column(false, i), i);
        EXPECT_EQ(gate_column(true, i), i / 8 * 16 + i % 8);
    }
    EXPECT_EQ(up_distance(false, 64), 64u);
    EXPECT_EQ(up_distance(true, 64), 8u);
}

TEST(Swiglu, ARowIsOfAGroupWhereItsSpansSaySo) {
    std::mt19937 numbers(6);
    const auto random = [&] { return static_cast<uint32_t>(numbers()); };
    for (int i = 0; i < 200; ++i) {
        const uint32_t rows = 1 + random() % 300, alignment = 1u << random() % 8;
        std::vector<int32_t> ends(2 + random() % 9);
        uint32_t begin = 0;
        for (int32_t& end : ends) {
            end = static_cast<int32_t>(std::min(rows, begin + random() % 60));
            begin = align_up(static_cast<uint32_t>(end), alignment);
            if (begin > rows) begin = rows;
        }
        const bool first = i % 2 == 0;
        const GroupLayout groups{.ends = ends.data() + first,
                                 .groups = static_cast<uint32_t>(ends.size() - first),
                                 .rows = rows,
                                 .alignment = first ? 1 : alignment,
                                 .first_is_given = first};
        for (uint32_t row = 0; row < rows; ++row) {
            bool held = false;
            for (uint32_t g = 0; g < groups.groups; ++g)
                held = held || (groups.span(g).begin <= row && row < groups.span(g).end);
            ASSERT_EQ(holds_row(groups, 0, row), held) << i << ", " << row;
        }
    }
}

}  // namespace
}  // namespace finegemm
