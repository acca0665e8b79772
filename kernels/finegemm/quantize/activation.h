// SwiGLU of a pair of a gate and an up value: the rule and its order of operations. Layer quantize.
//
// With a limit, gate and up are clamped first, gate from above alone. Then, each operation rounded to f32 once,
//     z = slope * gate, at least -88
//     sigmoid = 1 / (1 + exp(-z)), 0 where that is below 2^-126
//     (gate * sigmoid) * fma(up, weight, offset * weight)
// and that to bf16 where this is asked for. exp is a polynomial of fused multiply-adds, within 2 units in the last
// place of e^-z, and so the same bits everywhere; 1 / x is rounded to nearest. NaN of gate or up stays NaN.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

/// What a SwiGLU is told. As gpt-oss has it: limit 7, slope 1.702, offset 1.
struct SwigluRule {
    float limit = float_of_bits(0x7f800000u);  // above zero; infinite: none
    float slope = 1.0f;                        // above zero; gpt-oss: alpha
    float offset = 0.0f;
    uint32_t to_bf16 = 0;  // what is quantised is rounded to bf16 first
};

// Math is the host's arithmetic (src/ops/quantize/cpu_math.h) or a kernel's (device/swiglu.cuh):
//     fma(a, b, c); reciprocal(x), to nearest, of what lies in [1, 2^126], 0 of what is more; at_most(x, most) and
//     at_least(x, least), which leave a NaN of x a NaN.

/// exp(-z) for z in [-88, 64], at most 2^127.
template <typename Math>
FG_HD inline float exp_of_negative(float z) {
    constexpr float kLog2E = 0x1.715476p+0f;
    constexpr float kLn2 = 0x1.62e4p-1f, kLn2Rest = 0x1.7f7d1cp-20f;  // products of the first with integers are exact
    constexpr float kInteger = 0x1.8p23f;  // has a unit of 1: an addition rounds to integers, in the last bits
    const float rounded = Math::fma(z, -kLog2E, kInteger), n = rounded - kInteger;
    const float r = Math::fma(n, -kLn2Rest, Math::fma(n, -kLn2, -z));  // |r| <= ln(2) / 2 and a little
    float p = 0x1.0fa7d8p-7f;
    p = Math::fma(p, r, 0x1.573adp-5f);
    p = Math::fma(p, r, 0x1.555a6ep-3f);
    p = Math::fma(p, r, 0x1.fffdc4p-2f);
    p = Math::fma(p, r, 0x1.fffff6p-1f);
    p = Math::fma(p, r, 1.0f);
    return float_of_bits(float_bits(p) + (float_bits(rounded) << 23));
}

/// The magnitude of z up to which a sigmoid needs no clamps.
inline constexpr float kNearZero = 64.0f;

/// `Near`: z is near zero, or NaN.
template <typename Math, bool Near = false>
FG_HD inline float sigmoid(float z) {
    if (!Near) z = Math::at_least(Math::at_most(z, kNearZero), -88.0f);
    return Math::reciprocal(1.0f + exp_of_negative<Math>(z));
}

/// What is multiplied by the up of a row, and added.
struct UpFactor {
    float weight = 1.0f, offset = -0.0f;
};
/// Without an offset -0, which leaves zeros as they are.
FG_HD constexpr UpFactor up_factor(const SwigluRule& rule, float weight) {
    return {weight, rule.offset == 0 ? -0.0f : rule.offset * weight};
}

/// For a gate and an up that have been clamped; in f32, before a rounding to bf16.
template <typename Math, bool Near = false>
FG_HD inline float swiglu_of_clamped(float gate, float up, float slope, const UpFactor& of) {
    return gate * sigmoid<Math, Near>(slope * gate) * Math::fma(up, of.weight, of.offset);
}

template <typename Math>
FG_HD inline float clamped_gate(float gate, float limit) {
    return Math::at_most(gate, limit);
}
template <typename Math>
FG_HD inline float clamped_up(float up, float limit) {
    return Math::at_least(Math::at_most(up, limit), -limit);
}

template <typename Math>
FG_HD inline float swiglu(float gate, float up, const SwigluRule& rule, float weight = 1.0f) {
    return swiglu_of_clamped<Math>(clamped_gate<Math>(gate, rule.limit), clamped_up<Math>(up, rule.limit), rule.slope,
                                   up_factor(rule, weight));
}

/// The value that is quantised.
template <typename Math>
FG_HD inline float swiglu_value(float gate, float up, const SwigluRule& rule, float weight = 1.0f) {
    const float value = swiglu<Math>(gate, up, rule, weight);
    return rule.to_bf16 ? float_of_bf16(bf16_of_float(value)) : value;
}

/// Interleaved columns have so many gates, then as many ups: then one lane of an accumulator has both of a pair.
inline constexpr uint32_t kSwigluUnit = 8;

/// Where the gate of pair `i` of `pairs` lies, and how far behind it its up.
FG_HD constexpr uint32_t gate_column(bool interleaved, uint32_t i) {
    return i + (interleaved ? i / kSwigluUnit * kSwigluUnit : 0);
}
FG_HD constexpr uint32_t up_distance(bool interleaved, uint32_t pairs) { return interleaved ? kSwigluUnit : pairs; }

}  // namespace finegemm
