// Conversions of the small formats: all codes, all midpoints.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include <finegemm/core/fp8.h>

namespace finegemm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The value of a code by the format's definition (OCP 8-bit floating point, E4M3).
double defined_e4m3(int code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
    return code & 0x80 ? -magnitude : magnitude;
}

TEST(E4m3, EveryCodeIsWhatTheFormatSays) {
    for (int code = 0; code < 256; ++code) {
        const float value = float_of_e4m3(static_cast<uint8_t>(code));
        if ((code & 0x7f) == 0x7f) {
            EXPECT_TRUE(std::isnan(value)) << code;
        } else {
            EXPECT_EQ(value, defined_e4m3(code)) << code;
            EXPECT_EQ(std::signbit(value), code >= 128) << code;
        }
    }
}

TEST(E4m3, EveryCodeComesBack) {
    for (int code = 0; code < 256; ++code) {
        const int back = e4m3_of_float(float_of_e4m3(static_cast<uint8_t>(code)));
        EXPECT_EQ(back, (code & 0x7f) == 0x7f ? 0x7f : code);
    }
}

TEST(E4m3, BetweenTwoCodesTheNearestIsTakenAndOfTwoTheEvenOne) {
    for (int code = 0; code < 0x7e; ++code)
        for (const int sign : {0, 0x80}) {
            const float below = float_of_e4m3(static_cast<uint8_t>(code | sign)),
                        above = float_of_e4m3(static_cast<uint8_t>((code + 1) | sign));
            const float middle = (below + above) / 2;  // exact
            EXPECT_EQ(e4m3_of_float(middle), (code % 2 == 0 ? code : code + 1) | sign);
            EXPECT_EQ(e4m3_of_float(std::nextafter(middle, 0.0f)), code | sign);
            EXPECT_EQ(e4m3_of_float(std::nextafter(middle, sign ? -kInfinity : kInfinity)), (code + 1) | sign);
        }
}

TEST(E4m3, WhatIsTooLargeSaturates) {
    static_assert(e4m3_of_float(kE4m3Max) == 0x7e);
    for (const float x : {448.5f, 464.0f, 1e30f, std::numeric_limits<float>::max(), kInfinity}) {
        EXPECT_EQ(e4m3_of_float(x), 0x7e) << x;
        EXPECT_EQ(e4m3_of_float(-x), 0xfe) << x;
    }
}

TEST(E4m3, WhatIsTooSmallKeepsItsSign) {
    for (const float x : {0.0f, std::numeric_limits<float>::denorm_min(), 1e-30f, 0x1p-10f}) {
        EXPECT_EQ(e4m3_of_float(x), 0x00) << x;
        EXPECT_EQ(e4m3_of_float(-x), 0x80) << x;
    }
}

TEST(E4m3, EveryNaNBecomesTheOneWithoutASign) {
    for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu})
        EXPECT_EQ(e4m3_of_float(float_of_bits(bits)), 0x7f);
}

TEST(E5m2, EveryCodeIsTheUpperByteOfAHalf) {
    for (uint32_t code = 0; code < 256; ++code) {
        const float value = float_of_e5m2(static_cast<uint8_t>(code)),
                    half = float_of_f16(static_cast<uint16_t>(code << 8));
        EXPECT_EQ(float_bits(value), float_bits(half)) << code;
        if (!std::isfinite(value)) continue;
        EXPECT_EQ(e5m2_of_float(value), code);
    }
}

TEST(E5m2, BetweenTwoCodesTheNearestIsTakenAndOfTwoTheEvenOne) {
    for (int code = 0; code < 0x7b; ++code)
        for (const int sign : {0, 0x80}) {
            const float below = float_of_e5m2(static_cast<uint8_t>(code | sign)),
                        above = float_of_e5m2(static_cast<uint8_t>((code + 1) | sign));
            const float middle = (below + above) / 2;  // exact
            EXPECT_EQ(e5m2_of_float(middle), (code % 2 == 0 ? code : code + 1) | sign);
            EXPECT_EQ(e5m2_of_float(std::nextafter(middle, 0.0f)), code | sign);
            EXPECT_EQ(e5m2_of_float(std::nextafter(middle, sign ? -kInfinity : kInfinity)), (code + 1) | sign);
        }
}

TEST(E5m2, WhatIsTooLargeSaturatesAndNaNIsOneCode) {
    static_assert(e5m2_of_float(kE5m2Max) == 0x7b);
    for (const float x : {57345.0f, 65536.0f, 1e30f, kInfinity}) {
        EXPECT_EQ(e5m2_of_float(x), 0x7b) << x;
        EXPECT_EQ(e5m2_of_float(-x), 0xfb) << x;
    }
    for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u})
        EXPECT_EQ(e5m2_of_float(float_of_bits(bits)), 0x7f);
}

TEST(I8, FloatsBecomeTheNearestIntegerAndNeverTheLeastOne) {
    for (int code = -127; code <= 127; ++code) {
        const auto bits = static_cast<uint8_t>(code);
        const auto value = static_cast<float>(code);
        EXPECT_EQ(i8_of_float(value), bits);
        EXPECT_EQ(i8_of_float(std::nextafter(value + 0.5f, value)), bits) << code;
        EXPECT_EQ(i8_of_float(value + 0.5f), static_cast<uint8_t>(std::min(127, code % 2 == 0 ? code : code + 1)));
    }
    for (const float x : {127.5f, 1e30f, kInfinity}) {
        EXPECT_EQ(i8_of_float(x), 127) << x;
        EXPECT_EQ(i8_of_float(-x), 0x81) << x;
    }
    EXPECT_EQ(i8_of_float(float_of_bits(0x7fc00000)), 0);
}

TEST(Bf16, EveryCodeIsTheUpperHalfOfAFloatAndComesBack) {
    for (uint32_t code = 0; code < 65536; ++code) {
        const float value = float_of_bf16(static_cast<uint16_t>(code));
        ASSERT_EQ(float_bits(value), code << 16);
        ASSERT_EQ(bf16_of_float(value), std::isnan(value) ? 0x7fff : code);
    }
}

TEST(Bf16, BetweenTwoCodesTheNearestIsTakenAndOfTwoTheEvenOne) {
    for (uint32_t code = 0; code < 0x7f80; ++code)
        for (const uint32_t sign : {0u, 0x8000u}) {
            const uint32_t middle = (code | sign) << 16 | 0x8000;
            ASSERT_EQ(bf16_of_float(float_of_bits(middle)), (code % 2 == 0 ? code : code + 1) | sign);
            ASSERT_EQ(bf16_of_float(float_of_bits(middle - 1)), code | sign);
            ASSERT_EQ(bf16_of_float(float_of_bits(middle + 1)), (code + 1) | sign);
        }
}

TEST(Bf16, OfADoubleIsRoundedOnce) {
    // Just above and below the middle of 1 and its successor, by less than a float can say.
    EXPECT_EQ(bf16_of_double(1 + 0x1p-8), 0x3f80);
    EXPECT_EQ(bf16_of_double(1 + 0x1p-8 + 0x1p-40), 0x3f81);
    EXPECT_EQ(bf16_of_double(-1 - 0x1p-8 - 0x1p-40), 0xbf81);
    EXPECT_EQ(bf16_of_double(1 + 3 * 0x1p-8 - 0x1p-40), 0x3f81);
    EXPECT_EQ(bf16_of_double(1 + 3 * 0x1p-8), 0x3f82);
    EXPECT_EQ(bf16_of_double(std::numeric_limits<double>::quiet_NaN()), 0x7fff);
    EXPECT_EQ(bf16_of_double(1e300), 0x7f80);
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> mantissa(1, 2);
    for (int i = 0; i < 100000; ++i) {
        // Near a middle: k / 256 with an odd k, moved by up to 2^-30.
        const double middle = (2 * std::floor(mantissa(random) * 128) + 1) / 256,
                     x = middle + std::ldexp(mantissa(random) - 1.5, -30);
        const double step = 0x1p-7, down = std::floor(x / step) * step;
        const double nearest = x - down < step / 2 ? down : down + step;  // x is no tie: its last bits are not zero
        if (x - down == step / 2) continue;
        ASSERT_EQ(float_of_bf16(bf16_of_double(x)), nearest) << x;
    }
}

TEST(F16, EveryCodeIsWhatTheFormatSays) {
    for (int code = 0; code < 65536; ++code) {
        const float value = float_of_f16(static_cast<uint16_t>(code));
        const int exponent = code >> 10 & 31, mantissa = code & 1023;
        if (exponent == 31) {
            ASSERT_EQ(std::isnan(value), mantissa != 0) << code;
            ASSERT_EQ(std::isinf(value), mantissa == 0) << code;
        } else {
            const double magnitude =
                exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
            ASSERT_EQ(std::abs(value), magnitude) << code;
        }
        ASSERT_EQ(std::signbit(value), code >= 32768) << code;
    }
}

TEST(F16, EveryCodeComesBack) {
    for (uint32_t code = 0; code < 65536; ++code) {
        const float value = float_of_f16(static_cast<uint16_t>(code));
        ASSERT_EQ(f16_of_float(value), std::isnan(value) ? 0x7fff : code);
        ASSERT_EQ(f16_of_double(static_cast<double>(value)), std::isnan(value) ? 0x7fff : code);
    }
}

TEST(F16, BetweenTwoCodesTheNearestIsTakenAndOfTwoTheEvenOne) {
    for (uint32_t code = 0; code < 0x7c00; ++code) {
        const float next = code + 1 == 0x7c00 ? 65536.0f : float_of_f16(static_cast<uint16_t>(code + 1));
        const float middle = (float_of_f16(static_cast<uint16_t>(code)) + next) / 2;
        for (const uint32_t sign : {0u, 0x8000u}) {
            const auto rounded = [sign](float x) { return f16_of_float(sign ? -x : x); };
            ASSERT_EQ(rounded(middle), (code % 2 == 0 ? code : code + 1) | sign);
            ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), code | sign);
            ASSERT_EQ(rounded(std::nextafter(middle, kInfinity)), (code + 1) | sign);
        }
    }
}

TEST(F16, OfADoubleIsRoundedOnce) {
    EXPECT_EQ(f16_of_double(1 + 0x1p-11), 0x3c00);
    EXPECT_EQ(f16_of_double(1 + 0x1p-11 + 0x1p-50), 0x3c01);
    EXPECT_EQ(f16_of_double(-1 - 0x1p-11 - 0x1p-50), 0xbc01);
    EXPECT_EQ(f16_of_double(1e300), 0x7c00);
}

}  // namespace
}  // namespace finegemm
