// Conversions between float and the small formats: e4m3 (OCP FP8 E4M3FN), e5m2 (OCP FP8 E5M2), integers of eight bits,
// bfloat16, IEEE half.
// Layer core. All of it is exact and constexpr; rounding is to nearest, ties to even.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

inline constexpr float kE4m3Max = 448.0f, kE5m2Max = 57344.0f, kI8Max = 127.0f;  // kI8Max: -128 is not made

FG_HD constexpr uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
FG_HD constexpr float float_of_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
FG_HD constexpr bool is_nan(float x) { return x != x; }

/// Sign, four exponent bits with bias 7, three mantissa bits; S.1111.111 is NaN and there is no infinity.
FG_HD constexpr float float_of_e4m3(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24, magnitude = code & 0x7fu;
    if (magnitude == 0x7f) return float_of_bits(sign | 0x7fc00000u);
    if (magnitude < 8) return float_of_bits(sign | float_bits(static_cast<float>(magnitude) / 512));  // subnormal
    return float_of_bits(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

/// Saturates: what lies beyond +-448, infinities included, becomes +-448. NaN becomes 0x7f, as in PTX cvt.satfinite.
FG_HD constexpr uint8_t e4m3_of_float(float x) {
    const uint32_t sign = float_bits(x) >> 31 << 7, magnitude = float_bits(x) & 0x7fffffffu;
    if (is_nan(x)) return 0x7f;
    if (magnitude >= float_bits(kE4m3Max)) return static_cast<uint8_t>(sign | 0x7e);
    if (magnitude < float_bits(0x1p-6f)) {  // 2^14 has a unit of 2^-9, the subnormals' step: the addition rounds
        const uint32_t steps = float_bits(float_of_bits(magnitude) + 0x1p14f) - float_bits(0x1p14f);
        return static_cast<uint8_t>(sign | steps);
    }
    const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
    return static_cast<uint8_t>(sign | ((rounded >> 20) - ((127u - 7u) << 3)));
}

/// Sign, five exponent bits with bias 15, two mantissa bits: the upper byte of an IEEE half.
FG_HD constexpr float float_of_e5m2(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24, magnitude = code & 0x7fu;
    if (magnitude >= 0x7c) return float_of_bits(sign | 0x7f800000u | (magnitude & 3u) << 21);
    if (magnitude < 4) return float_of_bits(sign | float_bits(static_cast<float>(magnitude) * 0x1p-16f));  // subnormal
    return float_of_bits(sign | ((magnitude << 21) + ((127u - 15u) << 23)));
}

/// Saturates: what lies beyond +-57344, infinities included, becomes +-57344. NaN becomes 0x7f, as in PTX
/// cvt.satfinite.
FG_HD constexpr uint8_t e5m2_of_float(float x) {
    const uint32_t sign = float_bits(x) >> 31 << 7, magnitude = float_bits(x) & 0x7fffffffu;
    if (is_nan(x)) return 0x7f;
    if (magnitude >= float_bits(kE5m2Max)) return static_cast<uint8_t>(sign | 0x7b);
    if (magnitude < float_bits(0x1p-14f)) {  // 2^7 has a unit of 2^-16, the subnormals' step: the addition rounds
        const uint32_t steps = float_bits(float_of_bits(magnitude) + 0x1p7f) - float_bits(0x1p7f);
        return static_cast<uint8_t>(sign | steps);
    }
    const uint32_t rounded = magnitude + 0xfffffu + (magnitude >> 21 & 1u);
    return static_cast<uint8_t>(sign | ((rounded >> 21) - ((127u - 15u) << 2)));
}

/// Saturates: what lies beyond +-127, infinities included, becomes +-127. NaN becomes 0.
FG_HD constexpr uint8_t i8_of_float(float x) {
    if (is_nan(x)) return 0;
    const float inside = x > kI8Max ? kI8Max : x < -kI8Max ? -kI8Max : x;
    // 3 * 2^22 has a unit of 1: the addition rounds.
    return static_cast<uint8_t>(float_bits(inside + 0x3p22f) - float_bits(0x3p22f));
}

FG_HD constexpr float float_of_bf16(uint16_t code) { return float_of_bits(static_cast<uint32_t>(code) << 16); }

/// NaN becomes 0x7fff, as in PTX cvt.rn.bf16.f32.
FG_HD constexpr uint16_t bf16_of_float(float x) {
    if (is_nan(x)) return 0x7fff;
    const uint32_t bits = float_bits(x);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// A float on the way to a type with fewer bits: made odd where it is inexact, so that the second rounding cannot see a
/// false tie.
FG_HD constexpr float odd_float_of_double(double x) {
    const float nearest = static_cast<float>(x);
    uint32_t bits = float_bits(nearest);
    if (static_cast<double>(nearest) != x && x == x && (bits & 0x7fffffffu) < 0x7f800000u && (bits & 1u) == 0) {
        const bool away = (nearest > x) == (x > 0);  // rounding went away from zero: step back, to the odd neighbour
        bits = away ? bits - 1 : bits + 1;
    }
    return float_of_bits(bits);
}

FG_HD constexpr uint16_t bf16_of_double(double x) { return bf16_of_float(odd_float_of_double(x)); }

/// NaN becomes 0x7fff, as in PTX cvt.rn.f16.f32; what rounds beyond 65504 becomes infinite.
FG_HD constexpr uint16_t f16_of_float(float x) {
    const uint32_t sign = float_bits(x) >> 16 & 0x8000u, magnitude = float_bits(x) & 0x7fffffffu;
    if (is_nan(x)) return 0x7fff;
    if (magnitude >= float_bits(65520.0f)) return static_cast<uint16_t>(sign | 0x7c00);
    if (magnitude < float_bits(0x1p-14f)) {  // 2^-1 has a unit of 2^-24, the subnormals' step: the addition rounds
        const uint32_t steps = float_bits(float_of_bits(magnitude) + 0.5f) - float_bits(0.5f);
        return static_cast<uint16_t>(sign | steps);
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - ((127u - 15u) << 10)));
}
FG_HD constexpr uint16_t f16_of_double(double x) { return f16_of_float(odd_float_of_double(x)); }

FG_HD constexpr float float_of_f16(uint16_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x8000) << 16, magnitude = code & 0x7fffu;
    if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude < 0x400) return float_of_bits(sign | float_bits(static_cast<float>(magnitude) * 0x1p-24f));
    return float_of_bits(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

}  // namespace finegemm
