// Codes of e4m3 with an exponent for each 32 of K (MX) as codes with one scale for 128 of K: the rule, the work of one
// lane, and the launch's parameters. Layer quantize. CPU and GPU use the same functions and so give the same bits.
#pragma once

#include <finegemm/quantize/quantize.h>

namespace finegemm {

/// What an exponent serves of K, and how it is stored: e is 2^(e - 127), 0 for e = 0, NaN for the largest.
inline constexpr uint32_t kReencodedCols = 32, kExponentBias = 127, kExponentNan = 255;

FG_HD constexpr uint32_t exponent_in(uint32_t word, uint32_t col) {
    return word >> col % kScaleBlock / kReencodedCols * 8 & 0xff;
}

/// The biased exponent of the least power of two, as a scale, with which codes up to `largest`, whose own scale has the
/// biased exponent `exponent`, are not above 448; 0 where they have no say in it: zeros, and scales of 0 and NaN.
FG_HD constexpr uint32_t exponent_needed(float largest, uint32_t exponent) {
    if (largest == 0 || exponent == 0 || exponent == kExponentNan) return 0;
    const uint32_t moved = (float_bits(block_scale(float_bits(largest), true)) >> 23) + exponent;
    return max(moved, kExponentBias + 1) - kExponentBias;
}

/// The scale of codes that need this exponent.
FG_HD constexpr float reencoded_scale(uint32_t needed) { return needed == 0 ? 1.0f : float_of_bits(needed << 23); }

/// What codes are multiplied by: a power of two, 0, or NaN for an exponent that is NaN. Beyond 2^127 codes are all zero
/// or NaN, and below 2^-126 all become zero, but are not said to have been zero.
FG_HD constexpr float code_factor(uint32_t exponent, uint32_t needed) {
    if (exponent == kExponentNan) return float_of_bits(0x7fc00000u);
    const uint32_t moved = exponent + kExponentBias, least = needed == 0 ? kExponentBias : needed;
    return exponent == 0 ? 0.0f : float_of_bits(min(max(moved, least + 1) - least, kExponentNan - 1) << 23);
}

/// Everything about a kernel that is fixed when it is compiled.
struct ReencodeConfig {
    bool square_blocks = false;  // a scale for 128x128; else for 1x128

    static constexpr uint32_t kCount = 2;  // kernels that there are
    FG_HD constexpr uint32_t index() const { return square_blocks; }
    constexpr bool operator==(const ReencodeConfig&) const = default;

    static constexpr uint32_t kVector = 16;                    // codes that a lane loads at once
    static constexpr uint32_t kLanes = kScaleBlock / kVector;  // that share 128 of a row
    /// Vectors of a thread that are in flight together, below each other.
    FG_HD constexpr uint32_t unroll() const { return square_blocks ? 1 : 2; }
    FG_HD constexpr uint32_t threads() const { return square_blocks ? kScaleBlock * kLanes : 256; }
    FG_HD constexpr uint32_t warps() const { return threads() / kWarpSize; }
    FG_HD constexpr uint32_t ctas_per_sm() const { return square_blocks ? 2 : 5; }
    /// Rows and columns that a CTA does at once. Warps have neighbouring rows: exponents and scales of these often lie
    /// side by side.
    FG_HD constexpr uint32_t task_rows() const { return square_blocks ? kScaleBlock : unroll() * warps(); }
    FG_HD constexpr uint32_t task_cols() const { return square_blocks ? kScaleBlock : kWarpSize * kVector; }
    /// Where a thread has its first vector of a task; the next ones are as many rows below as there are warps.
    FG_HD constexpr RowCol origin(uint32_t thread) const {
        const uint32_t across = square_blocks ? kLanes : kWarpSize;
        return {.row = thread / across, .col = thread % across * kVector};
    }
};

struct ReencodeParams {
    const uint8_t* codes;
    const uint32_t* words;  // four exponents of a row in each, the first of K in the lowest byte
    uint8_t* q;
    float* scales;
    uint32_t* changed;  // groups of 128 of a row with a value that is not what it was are added to it; null: not wanted
    int64_t code_row_stride, q_row_stride;  // elements
    int64_t word_row_stride, word_col_stride;
    int64_t scale_row_stride, scale_col_stride;
    uint32_t rows, cols;  // of a matrix; cols: a multiple of 16
    uint32_t matrices;    // of a stack, with elements from one to the next
    int64_t code_stride, word_stride, q_stride, scale_stride;
};

/// A task of a CTA.
struct ReencodeTask {
    uint32_t matrix;
    RowCol first;  // element of the matrix
};
FG_HD constexpr uint64_t reencode_tasks(const ReencodeConfig& c, uint32_t rows, uint32_t cols, uint32_t matrices) {
    return static_cast<uint64_t>(ceil_div(rows, c.task_rows())) * ceil_div(cols, c.task_cols()) * matrices;
}
FG_HD constexpr ReencodeTask reencode_task(const ReencodeConfig& c, uint32_t rows, uint32_t cols, uint64_t task) {
    const uint32_t across = ceil_div(cols, c.task_cols()), down = ceil_div(rows, c.task_rows());
    const uint64_t row = task / across;
    return {.matrix = static_cast<uint32_t>(row / down),
            .first = {.row = static_cast<uint32_t>(row % down) * c.task_rows(),
                      .col = static_cast<uint32_t>(task % across) * c.task_cols()}};
}

}  // namespace finegemm
