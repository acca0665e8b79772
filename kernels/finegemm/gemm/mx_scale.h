// MxScale: the scales of a row in a k-block as MX has them, one for each 32 of K. Layer gemm.
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

}  // namespace finegemm
