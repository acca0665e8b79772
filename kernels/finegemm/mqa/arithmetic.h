// What the bits of a logit depend on: the order of sums over heads, and the columns of the abs form. Layer mqa.
//
// x[h] = q[h] . k is what tensor cores sum over D, 32 elements at a time, from zero. A NaN in q[h] or k makes it NaN.
//
// Exact form: sum over h of w[h] * relu(x[h]). Four lanes share the heads of a query: lane t has heads 8 j + 2 t + e of
// each octet j, e of 0 and 1. From zero, with j and then e ascending, partial[t] = fma(relu(x[h]), w[h], partial[t]).
//     sum = (partial[0] + partial[2]) + (partial[1] + partial[3])
//
// Abs form: relu(x) = (x + |x|) / 2. The sum over |x| is taken in the same order, with w[h] / 2 in place of w[h] and
// |x| in place of relu(x). The sum over x is linear: it is that of one more head,
//     v[d] = fma(w[h] / 2, q[h][d], v[d]), from zero, h ascending,
// of which two residual e4m3 columns are multiplied by k as the heads are, giving y[0] and y[1]:
//     sum = fma(fma(y[1], kResidualStep, y[0]), step, sum over |x|)
// A query whose v is not finite somewhere takes the exact form: then a weight or a sum is not finite.
//
// logit = sum * scale of the key, rounded to f32, and that to bf16 where logits are. All operations are IEEE's, to
// nearest even, subnormal numbers kept. GPUs have one NaN: 0x7fffffff in f32, 0x7fff in bf16.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

/// Columns of a product, those of several queries: 128 / heads.
inline constexpr uint32_t kMqaColumns = 128;

/// NaN stays NaN, unlike in fmaxf.
FG_HD constexpr float relu(float x) { return x > 0 || is_nan(x) ? x : 0.0f; }

/// Which head lane `lane` (0..3) adds as number `i` (0..heads / 4 - 1).
FG_HD constexpr uint32_t mqa_head(uint32_t lane, uint32_t i) { return i / 2 * 8 + lane * 2 + i % 2; }

/// The sum of what four lanes have.
FG_HD constexpr float mqa_quad_sum(float a, float b, float c, float d) { return (a + c) + (b + d); }

/// Columns of a residual pair: v is about step * (first + second / 28). The first rounds what it has by 16 at most.
inline constexpr float kResidualSteps = 28.0f, kResidualStep = 1 / kResidualSteps;
static_assert(kResidualSteps * 16 == kE4m3Max);

/// The bits of a magnitude; beyond those of infinity for NaN, so that the largest of many tells.
FG_HD constexpr uint32_t magnitude_bits(float x) { return float_bits(x) & 0x7fffffffu; }
FG_HD constexpr bool is_finite_magnitude(uint32_t bits) { return bits < 0x7f800000u; }

/// The least power of two by which a v of this largest magnitude fits e4m3, as a biased exponent: at least 1, at most
/// 247. `largest`: the bits of a finite magnitude.
FG_HD constexpr uint32_t linear_exponent(uint32_t largest) {
    constexpr uint32_t kMost = 8, kMantissa = 0x600000;  // of 448: 1.75 * 2^8
    const uint32_t exponent = (largest >> 23) + ((largest & 0x7fffff) > kMantissa ? 1 : 0);
    return exponent > kMost ? exponent - kMost : 1;
}
FG_HD constexpr float linear_step(uint32_t exponent) { return float_of_bits(exponent << 23); }
/// 1 / linear_step.
FG_HD constexpr float linear_inverse(uint32_t exponent) { return float_of_bits((254 - exponent) << 23); }

struct ResidualPair {
    uint8_t first, second;
    constexpr bool operator==(const ResidualPair&) const = default;
};
/// `v` times linear_inverse, which is exact but for what is too small to matter.
FG_HD constexpr ResidualPair residual_pair(float scaled) {
    const uint8_t first = e4m3_of_float(scaled);
    return {first, e4m3_of_float((scaled - float_of_e4m3(first)) * kResidualSteps)};
}

}  // namespace finegemm
