// What the bits of a product before a norm depend on: how B is rounded and divided. Layer prenorm.
//
// b is rounded to TF32, 11 significant bits, to nearest and ties to even. That is the sum of two numbers of bf16: its
// first 8 bits, and the 3 behind them. Tensor cores multiply A by both, and the sums are added.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

/// NaN becomes 0x7fc00000.
FG_HD constexpr float tf32_of_float(float x) {
    if (is_nan(x)) return float_of_bits(0x7fc00000u);
    const uint32_t bits = float_bits(x);
    return float_of_bits((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

/// Codes of bf16 whose sum is a number of TF32; both have its sign, or the second is 0.
struct PrenormParts {
    uint16_t high, low;
};
FG_HD constexpr PrenormParts prenorm_parts(float b) {
    const uint32_t bits = float_bits(tf32_of_float(b));
    const auto high = static_cast<uint16_t>(bits >> 16);
    if ((bits & 0x7f800000u) == 0x7f800000u) return {high, 0};
    return {high, bf16_of_float(float_of_bits(bits) - float_of_bf16(high))};
}

/// An infinite `high` has the right sign; `low` is NaN where an infinity of A met a part that is 0.
FG_HD constexpr float prenorm_sum(float high, float low) {
    return (float_bits(high) & 0x7fffffffu) == 0x7f800000u ? high : high + low;
}

}  // namespace finegemm
