// MxScale: the scales of a row in a k-block as MX has them, one for each 32 of K; and what e4m3 and they are in BF16.
// Layer gemm.
// In memory each is the biased exponent of a power of two, and those of a k-block are a word, the first one in the
// lowest byte. Math warps multiply floats, and a column's scales are read by 32 threads: so they become floats once, on
// their way to shared memory.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

/// Scales of a row in a k-block, and of K that each serves.
inline constexpr uint32_t kMxParts = 4, kMxCols = 32;

struct MxScale {
    uint32_t word[kMxParts];  // bits of floats
};
inline constexpr uint32_t kMxScaleBytes = 16;

/// The bits of the scale of a part: 2^(e - 127), 0 for e = 0 and NaN for e = 255.
FG_HD constexpr uint32_t mx_scale_bits(uint32_t word, uint32_t part) {
    const uint32_t e = word >> 8 * part & 0xff;
    return e == 255 ? 0x7fc00000u : e << 23;
}

/// The scales of a word, which came as a float.
FG_HD constexpr MxScale mx_scale_of_word(float bits) {
    const uint32_t word = float_bits(bits);
    return {{mx_scale_bits(word, 0), mx_scale_bits(word, 1), mx_scale_bits(word, 2), mx_scale_bits(word, 3)}};
}
/// One scale that serves the whole k-block.
FG_HD constexpr MxScale mx_scale_of_float(float scale) {
    const uint32_t bits = float_bits(scale);
    return {{bits, bits, bits, bits}};
}

// Decoded operands. The bits of an e4m3 code that stand in a bf16 four bits from the right are a number that is 2^120
// times too small, of subnormal codes, too. One product with a factor of 2^(120 + e - 127) makes it the value: exactly,
// as bf16 has more bits of a significand, and the exponents of f32.
inline constexpr uint32_t kMxCodeBits = 0x87f087f0, kMxNanCode = 0x07f0, kMxNan = 0x7fc0;

/// Two codes as numbers that want their factors, of codes that came with their sign in the eight bits above each.
FG_HD constexpr uint32_t mx_place(uint32_t spread) { return spread << 4 & kMxCodeBits; }
/// Sets bits of kMxNanFound where one of these two is NaN, which they cannot say themselves; others' bits are any.
inline constexpr uint32_t kMxNanFound = 0x08000800;
FG_HD constexpr uint32_t mx_nan_bits(uint32_t placed) { return placed + 0x00100010; }

// Both halves of a factor are one bf16. It would be infinite for exponents above 134: then the highest bit is set, the
// lower half is the second of two factors, and the first is the largest power of two. Products are NaN for 255.
inline constexpr uint32_t kMxLargest = 0x7f007f00, kMxMostExponent = 134, kMxTwice = 0x80000000u, kMxOne = 0x3f803f80;
FG_HD constexpr uint32_t mx_factor(uint32_t e) {
    if (e == 255) return kMxNan * 0x10001u;
    if (e > kMxMostExponent) return kMxTwice | (e - kMxMostExponent + 127) << 7;
    return e == 0 ? 0 : (e + 120) * 0x00800080u;
}
/// The factors of a word's exponents, which came as a float. All are usual but those of zeros, as a rule.
FG_HD constexpr MxScale mx_factors_of_word(float bits) {
    const uint32_t word = float_bits(bits), low = word & 0x7f7f7f7fu;
    const uint32_t above = (low + 0x79797979u) & word, some = (low + 0x7f7f7f7fu) | word;  // > 134, and > 0
    const auto e = [&](uint32_t part) { return word >> 8 * part & 0xff; };
    if ((above & 0x80808080u) != 0 || (some & 0x80808080u) != 0x80808080u)
        return {{mx_factor(e(0)), mx_factor(e(1)), mx_factor(e(2)), mx_factor(e(3))}};
    const uint32_t biased = word + 120 * 0x01010101u;
    const auto factor = [&](uint32_t part) { return (biased >> 8 * part & 0xff) * 0x00800080u; };
    return {{factor(0), factor(1), factor(2), factor(3)}};
}

// The order of K, in halves of a k-block: a thread has sixteen neighbouring codes of a row, and of wgmma's sixteen of K
// in step j those of the j-th word of four threads, of each word the lower two codes before the upper ones.
inline constexpr uint32_t kMxHalf = 64;

/// The row of B, of a WGMMA's 64, that stands in its row `row`: rows that a quarter of a warp loads together lie in
/// different banks, as those four apart do.
FG_HD constexpr uint32_t mx_row_of_b(uint32_t row) { return (row & ~7u) | (row & 1) << 2 | (row & 7) >> 1; }
/// The byte of a swizzled row at which sixteen codes lie.
FG_HD constexpr uint32_t mx_codes_at(uint32_t row, uint32_t sixteen) { return row * 128 + (sixteen ^ (row & 7)) * 16; }

}  // namespace finegemm
