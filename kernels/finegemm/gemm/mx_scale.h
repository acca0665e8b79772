// MxScale: the scales of a row in a k-block as MX has them, one for each 32 of K; DecodingFactors: what decoded operands have
// for them. Layer gemm.
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

/// The bits of the scale of a part: 2^(e - 127), 0 for e = 0 and infinity for e = 255.
FG_HD constexpr uint32_t mx_scale_bits(uint32_t word, uint32_t part) { return (word >> 8 * part & 0xff) << 23; }

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

// Decoded operands are e4m3 codes in f16 times factors: scales over the largest one of the row in the k-block, and 64
// times that, as f16 has room for 448 * 64 and none to spare below. Products of f16 are exact in f32. Of exponents up to
// 30 apart factors are exact; a value of which f16 has not all bits is off by at most 2^-31 of that scale, and what is
// smaller by 2^31 counts as nothing.
inline constexpr uint32_t kMxHeadroom = 6;

/// The factor of a scale that is 2^below times smaller than the largest: a power of two in f16.
FG_HD constexpr uint32_t mx_factor(uint32_t below) {
    constexpr uint32_t kBias = 15, kSmallest = 24;  // of f16: 2^-24 has one bit
    return below < kBias + kMxHeadroom ? (kBias + kMxHeadroom - below) << 10
                                       : (1u << (kSmallest + kMxHeadroom)) >> min(below, 31);
}

/// The factors of a row's four scales, two to a word, and the largest scale: the bits of a float.
struct DecodingFactors {
    uint32_t word[kMxParts];  // the last one is unused
};

/// 2^(e - 127 - 2 * kMxHeadroom), what both operands' factors have too much: of B. Infinity for e = 255.
FG_HD constexpr uint32_t mx_largest_of_b(uint32_t e) {
    constexpr uint32_t kMore = 2 * kMxHeadroom;
    return e == 255 ? 255u << 23 : e > kMore ? (e - kMore) << 23 : 1u << (22 - kMore + e);
}
/// 2^(e - 127): of A. Infinity for e = 255.
FG_HD constexpr uint32_t mx_largest_of_a(uint32_t e) { return e << 23; }

/// The factors of a word of exponents, which came as a float; `largest` is one of the above.
template <typename Largest>
FG_HD constexpr DecodingFactors decoding_factors(float bits, const Largest& largest) {
    const uint32_t word = float_bits(bits);
    const auto e = [&](uint32_t part) { return word >> 8 * part & 0xff; };
    const uint32_t top = max(max(e(0), e(1)), max(e(2), e(3)));
    const auto factor = [&](uint32_t part) { return e(part) == 0 ? 0 : mx_factor(top - e(part)); };
    return {{factor(0) | factor(1) << 16, factor(2) | factor(3) << 16, largest(top), 0}};
}

// The order of K, in halves of a k-block: a thread has sixteen neighbouring codes of a row, and of wgmma's sixteen of K
// in step j those of the j-th word of four threads, of each word the lower two codes before the upper ones.

/// The row of B, of a WGMMA's 64, that stands in its row `row`: rows that a quarter of a warp loads together lie in
/// different banks, as those four apart do.
FG_HD constexpr uint32_t mx_row_of_b(uint32_t row) { return (row & ~7u) | (row & 1) << 2 | (row & 7) >> 1; }
/// The byte of a swizzled row at which sixteen codes lie.
FG_HD constexpr uint32_t mx_codes_at(uint32_t row, uint32_t sixteen) { return row * 128 + (sixteen ^ (row & 7)) * 16; }

}  // namespace finegemm
