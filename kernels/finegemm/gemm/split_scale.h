// SplitScale: a scale in bf16 parts of eight bits, as tensor cores multiply it. Layer gemm.
// Where each row of B has a scale, a block product has as many factors as elements: sfa[row] * sfb[col]. Multiplied one
// by one, they take as many instructions as the promotion, and loads of all scales of columns in each warp. So they are
// a matrix product of their own: a float is the sum of three bf16 numbers, and of the nine products of those of two
// floats eight make theirs, but for less than 2^-30 of it. docs/numerics.md has what comes out.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

/// x = high + middle + low, each with at most eight significant bits, but for what of x is below 2^-133, the smallest
/// bf16 number. NaN and infinity have one part that is NaN.
struct ScaleParts {
    float high, middle, low;
};
FG_HD constexpr ScaleParts scale_parts(float x) {
    const auto leading = [](float y) { return float_of_bits(float_bits(y) & 0xffff0000u); };
    const float high = leading(x), rest = x - high;  // exact, as the next one is
    return {.high = high, .middle = leading(rest), .low = leading(rest - leading(rest))};
}

/// The scale of a row of A or of B as eight bf16 numbers, K-major: an operand row of the tensor cores.
struct SplitScale {
    uint32_t word[4];
};
inline constexpr uint32_t kSplitScaleBytes = 16;
/// Rows of a wgmma's A, of which all have the same zeros.
inline constexpr uint32_t kZeroRows = 64;

namespace detail {
FG_HD constexpr uint32_t bf16_pair(float first, float second) {
    return float_bits(first) >> 16 | (float_bits(second) & 0xffff0000u);
}
}  // namespace detail

// high * high, high * middle, middle * high, high * low, low * high, middle * middle, middle * low, low * middle. A
// wgmma takes sixteen numbers of a row at least: of A the others are zeros, and of B these once more.
FG_HD constexpr SplitScale split_scale_of_a(float scale) {
    const auto [high, middle, low] = scale_parts(scale);
    return {{detail::bf16_pair(high, high), detail::bf16_pair(middle, high), detail::bf16_pair(low, middle),
             detail::bf16_pair(middle, low)}};
}
FG_HD constexpr SplitScale split_scale_of_b(float scale) {
    const auto [high, middle, low] = scale_parts(scale);
    return {{detail::bf16_pair(high, middle), detail::bf16_pair(high, low), detail::bf16_pair(high, middle),
             detail::bf16_pair(low, middle)}};
}

}  // namespace finegemm
