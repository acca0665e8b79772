// The boxes of the three tensor maps of a GEMM, and the rules that the hardware sets for them.
// Layer core. CUDA driver API, cuTensorMapEncodeTiled.
#pragma once

#include <finegemm/core/schedule.h>
#include <finegemm/core/smem_plan.h>
#include <finegemm/core/swizzle.h>

namespace finegemm {

struct TmaBox {
    uint32_t rows = 0, cols = 0;      // cols: elements along the contiguous dimension
    uint32_t element_bytes = 1;
    Swizzle swizzle = Swizzle::None;
    constexpr bool operator==(const TmaBox&) const = default;
};

FG_HD constexpr TmaBox a_box(const GemmConfig& c, uint32_t m) {
    return {.rows = a_box_rows(c, m), .cols = GemmConfig::kTileK, .element_bytes = 1, .swizzle = Swizzle::B128};
}
FG_HD constexpr TmaBox b_box(const GemmConfig& c) {
    return {.rows = b_box_rows(c), .cols = GemmConfig::kTileK, .element_bytes = 1, .swizzle = Swizzle::B128};
}
FG_HD constexpr TmaBox d_box(const GemmConfig& c) {
    return {.rows = 64, .cols = d_box_cols(c), .element_bytes = 2, .swizzle = swizzle_for(d_box_cols(c) * 2)};
}

/// Byte of a slab of D at which a 16-byte piece of a row goes: box after box, rows swizzled as the tensor map says.
FG_HD constexpr uint32_t slab_offset(const GemmConfig& c, RowCol piece) {
    const TmaBox box = d_box(c);
    return piece.col / box.cols * d_box_bytes(c) +
           swizzled(box.swizzle, piece.row * box.cols * 2 + piece.col % box.cols * 2);
}

/// Boxes have at most 256 rows, rows of a multiple of 16 bytes, and rows no wider than the swizzle.
FG_HD constexpr bool legal(const TmaBox& b) {
    const uint32_t row_bytes = b.cols * b.element_bytes;
    const uint32_t width = static_cast<uint32_t>(b.swizzle);
    return b.rows > 0 && b.rows <= 256 && b.cols > 0 && b.cols <= 256 && row_bytes % 16 == 0 &&
           (width == 0 || row_bytes <= width);
}

}  // namespace finegemm
