// Quantisation to e4m3, e5m2 or integers with a scale for each block or row: the rule, the work of one lane, and the
// launch's parameters. Layer quantize. CPU and GPU use the same functions and so give the same bits.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

/// The smallest scale: its reciprocal is finite and neither of the two is subnormal.
inline constexpr float kLeastScale = 0x1p-126f;

/// The bits of |x|, which are ordered as the values are; 0 for what is not finite and has no say in the scale.
FG_HD constexpr uint32_t finite_magnitude(float x) {
    const uint32_t bits = float_bits(x) & 0x7fffffffu;
    return bits < 0x7f800000u ? bits : 0;
}

/// What is written.
enum class QuantizeCodes : uint32_t { E4M3, E5M2, I8 };
FG_HD constexpr float largest_code(QuantizeCodes codes) {
    return codes == QuantizeCodes::I8 ? kI8Max : codes == QuantizeCodes::E5M2 ? kE5m2Max : kE4m3Max;
}

/// The scale of a block whose largest finite magnitude has the bits `largest`: amax / the largest code, 448, 57344 or
/// 127, at least kLeastScale; 1 for a block of zeros. With `power_of_two` rounded up to one.
FG_HD constexpr float block_scale(uint32_t largest, bool power_of_two, QuantizeCodes codes = QuantizeCodes::E4M3) {
    if (largest == 0) return 1.0f;
    const float scale = float_of_bits(largest) / largest_code(codes);
    if (scale < kLeastScale) return kLeastScale;
    return power_of_two ? float_of_bits((float_bits(scale) + 0x7fffffu) & 0x7f800000u) : scale;
}

/// Factor of the elements: one rounding of the reciprocal, one of the product.
FG_HD constexpr float inverse_scale(float scale) { return 1.0f / scale; }

FG_HD constexpr uint8_t quantize_element(float x, float inverse, QuantizeCodes codes = QuantizeCodes::E4M3) {
    const float y = x * inverse;
    return codes == QuantizeCodes::I8     ? i8_of_float(y)
           : codes == QuantizeCodes::E5M2 ? e5m2_of_float(y)
                                          : e4m3_of_float(y);
}

enum class QuantizeInput : uint32_t { F32, F16, BF16 };

/// Everything about a quantisation kernel that is fixed when it is compiled.
struct QuantizeConfig {
    QuantizeInput input = QuantizeInput::BF16;
    bool square_blocks = false;  // 128x128 blocks; else 1x128
    QuantizeCodes codes = QuantizeCodes::E4M3;
    bool whole_rows = false;  // one scale for each row, whatever its length; no blocks

    static constexpr uint32_t kCount = 27;  // kernels that there are
    /// Its place among them.
    FG_HD constexpr uint32_t index() const {
        return static_cast<uint32_t>(codes) * 9 + static_cast<uint32_t>(input) * 3 + square_blocks + 2 * whole_rows;
    }
    constexpr bool operator==(const QuantizeConfig&) const = default;

    /// Elements that a lane loads at once: 16 bytes.
    FG_HD constexpr uint32_t vector() const { return input == QuantizeInput::F32 ? 4 : 8; }
    /// Lanes that share a row of a block.
    FG_HD constexpr uint32_t lanes() const { return kScaleBlock / vector(); }
    /// Vectors of a thread that are in flight together: of square blocks below each other.
    FG_HD constexpr uint32_t unroll() const { return square_blocks ? kTileRows : 4; }
    FG_HD constexpr uint32_t threads() const {
        return square_blocks ? kScaleBlock / kTileRows * lanes() : whole_rows ? 512 : 256;
    }
    FG_HD constexpr uint32_t warps() const { return threads() / kWarpSize; }
    /// So many must fit an SM: bounds registers. As many as spill nothing.
    FG_HD constexpr uint32_t ctas_per_sm() const { return square_blocks ? 1024 / threads() : whole_rows ? 3 : 5; }
    /// 1x128 blocks of one row that a warp does at once.
    FG_HD constexpr uint32_t warp_blocks() const { return unroll() * kWarpSize / lanes(); }

    /// Elements of a row that so many warps hold in registers.
    FG_HD constexpr uint32_t held(uint32_t row_warps) const { return row_warps * kWarpSize * unroll() * vector(); }
    /// Warps of a CTA that take a whole row together: no more than hold it, if all do.
    FG_HD constexpr uint32_t row_warps(uint32_t cols) const {
        uint32_t warps = 1;
        while (warps < this->warps() && held(warps) < cols) warps *= 2;
        return warps;
    }
    /// Whole rows that a CTA does at once.
    FG_HD constexpr uint32_t whole_rows_at_once(uint32_t cols) const { return warps() / row_warps(cols); }

    // A 128x128 block goes through shared memory to be transposed.
    static constexpr uint32_t kTileRows = 8;  // in each thread: their codes of a column are stored at once
    /// Where a thread has its elements in the block.
    FG_HD constexpr RowCol origin(uint32_t thread) const {
        return {.row = thread / lanes() * kTileRows, .col = thread % lanes() * vector()};
    }
    /// Where the codes, which are [column][row] in pieces of 8 rows, have a piece, in bytes. Columns of one vector are
    /// turned alike, so that the lanes that store their pieces together meet all banks once.
    FG_HD constexpr uint32_t place(uint32_t col, uint32_t piece) const {
        return col * kScaleBlock + (piece ^ turn(col)) * kTileRows;
    }
    FG_HD constexpr uint32_t turn(uint32_t col) const { return col / vector() % (kScaleBlock / kTileRows); }
};

/// Codes of columns of x as rows.
struct TransposedCodes {
    uint8_t* q;  // [rows, cols]
    int64_t row_stride;
    uint32_t rows, cols;  // cols: a multiple of 16
};

struct QuantizeParams {
    const void* x;
    uint8_t* q;
    float* scales;
    int64_t x_row_stride, q_row_stride;  // elements
    int64_t scale_row_stride, scale_col_stride;
    uint32_t rows, cols;  // cols: a multiple of 16
    uint32_t power_of_two;
    // For blocks alone: a stack of matrices, with elements from one to the next, and the codes of q by columns.
    uint32_t matrices;
    int64_t x_stride, q_stride, scale_stride;
    uint8_t* transposed;  // [cols, rows]; null: not wanted
    int64_t transposed_row_stride, transposed_stride;

    FG_HD constexpr TransposedCodes columns(uint32_t matrix) const {
        return {transposed + matrix * transposed_stride, transposed_row_stride, cols, rows};
    }
};

/// Position of vector `u` of thread `thread`: in a warp's consecutive 1x128 blocks of one row, or in a 128x128 block.
FG_HD constexpr RowCol quantize_vector(const QuantizeConfig& c, uint32_t thread, uint32_t u) {
    const RowCol first = c.origin(thread);
    if (c.square_blocks) return {.row = first.row + u, .col = first.col};
    const uint32_t position = u * kWarpSize + thread % kWarpSize;  // in vectors, lanes() of them to a block
    return {.row = 0, .col = position / c.lanes() * kScaleBlock + first.col};
}

/// Tasks that lie side by side: consecutive 1x128 blocks of a warp, or 128x128 blocks.
FG_HD constexpr uint32_t quantize_tasks_across(const QuantizeConfig& c, uint32_t cols) {
    const uint32_t k_blocks = ceil_div(cols, kScaleBlock);
    return c.square_blocks ? k_blocks : ceil_div(k_blocks, c.warp_blocks());
}

/// Units of work: of a warp for 1x128 blocks, of a CTA for 128x128 blocks.
FG_HD constexpr uint64_t quantize_tasks(const QuantizeConfig& c, uint32_t rows, uint32_t cols) {
    return static_cast<uint64_t>(c.square_blocks ? ceil_div(rows, kScaleBlock) : rows) * quantize_tasks_across(c, cols);
}

/// CTAs that do each task once; of whole rows each row.
FG_HD constexpr uint64_t quantize_ctas(const QuantizeConfig& c, uint32_t rows, uint32_t cols) {
    if (c.whole_rows) return ceil_div(rows, c.whole_rows_at_once(cols));
    const uint64_t at_once = c.square_blocks ? 1 : c.warps();
    return (quantize_tasks(c, rows, cols) + at_once - 1) / at_once;
}

/// The first element of a task.
FG_HD constexpr RowCol quantize_origin(const QuantizeConfig& c, uint32_t cols, uint64_t task) {
    const uint32_t across = quantize_tasks_across(c, cols);
    const uint32_t down = static_cast<uint32_t>(task / across), right = static_cast<uint32_t>(task % across);
    return c.square_blocks ? RowCol{.row = down * kScaleBlock, .col = right * kScaleBlock}
                           : RowCol{.row = down, .col = right * c.warp_blocks() * kScaleBlock};
}

/// A 128x128 block of a stack.
struct StackBlock {
    uint32_t matrix;
    RowCol first;  // element of the matrix
};
/// The block that task `task` of a stack does. No memory has room for 2^32 rows of blocks.
FG_HD constexpr StackBlock stack_block(uint32_t rows, uint32_t cols, uint64_t task) {
    const uint32_t across = ceil_div(cols, kScaleBlock), down = ceil_div(rows, kScaleBlock);
    const uint32_t row = static_cast<uint32_t>(task / across), col = static_cast<uint32_t>(task % across);
    return {row / down, {.row = row % down * kScaleBlock, .col = col * kScaleBlock}};
}

}  // namespace finegemm
