// SwiGLU of a pair of a gate and an up value: the rule and its order of operations. Layer quantize.
//
// With a limit, gate and up are clamped first, gate from above alone. Then, each operation rounded to f32 once,
//     z = alpha * gate
//     sigmoid = 1 / (1 + exp(-z)), 0 below z = -87
//     ((gate * sigmoid) * (up + offset)) * weight
// and that to bf16 where this is asked for. exp is a polynomial of fused multiply-adds, within 1 unit in the last place
// of e^-z on [-20, 87], and so the same bits everywhere; 1 / x is rounded correctly. NaN of gate or up stays NaN.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

/// What a SwiGLU is told. As gpt-oss has it: limit 7, alpha 1.702, offset 1.
struct SwigluRule {
    float limit = float_of_bits(0x7f800000u);  // above zero; infinite: none
    float alpha = 1.0f;                        // above zero
    float offset = 0.0f;
    uint32_t to_bf16 = 0;  // what is quantised is rounded to bf16 first
};

// Math is the host's arithmetic (src/ops/quantize/cpu_math.h) or a kernel's (device/swiglu.cuh):
//     fma(a, b, c); reciprocal(x), to nearest, of what lies in [1, 2^126]; at_most(x, most) and at_least(x, least),
//     which leave a NaN of x a NaN.

/// exp(-z) for z in [-87, 64], at most 2^126.
template <typename Math>
FG_HD inline float exp_of_negative(float z) {
    constexpr float kLog2E = 0x1.715476p+0f;
    constexpr float kLn2 = 0x1.62e4p-1f, kLn2Rest = 0x1.7f7d1cp-20f;  // products of the first with integers are exact
    constexpr float kInteger = 0x1.8p23f;  // has a unit of 1: an addition rounds to integers, in the last bits
    const float rounded = Math::fma(z, -kLog2E, kInteger), n = rounded - kInteger;
    const float r = Math::fma(n, -kLn2Rest, Math::fma(n, -kLn2, -z));  // |r| <= ln(2) / 2 and a little
    float p = 0x1.6a23cep-10f;
    p = Math::fma(p, r, 0x1.123a20p-7f);
    p = Math::fma(p, r, 0x1.5558f2p-5f);
    p = Math::fma(p, r, 0x1.555492p-3f);
    p = Math::fma(p, r, 0x1.fffffcp-2f);
    p = Math::fma(p, r, 1.0f);
    p = Math::fma(p, r, 1.0f);
    return float_of_bits(float_bits(p) + (float_bits(rounded) << 23));
}

/// From z = -87 down, where it is less than 2^-125, it counts as 0.
template <typename Math>
FG_HD inline float sigmoid(float z) {
    const float x = Math::reciprocal(1.0f + exp_of_negative<Math>(Math::at_most(z, 64.0f)));
    return z < -87.0f ? 0.0f : x;
}

/// In f32, before a rounding to bf16.
template <typename Math>
FG_HD inline float swiglu(float gate, float up, const SwigluRule& rule, float weight = 1.0f) {
    gate = Math::at_most(gate, rule.limit);
    up = Math::at_least(Math::at_most(up, rule.limit), -rule.limit);
    return gate * sigmoid<Math>(rule.alpha * gate) * (up + rule.offset) * weight;
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
    return interleaved ? i / kSwigluUnit * 2 * kSwigluUnit + i % kSwigluUnit : i;
}
FG_HD constexpr uint32_t up_distance(bool interleaved, uint32_t pairs) { return interleaved ? kSwigluUnit : pairs; }

}  // namespace finegemm
