// The boxes of the tensor maps of a GEMM, and the rules that the hardware sets for them.
// Layer core. CUDA driver API, cuTensorMapEncodeTiled.
#pragma once

#include <finegemm/core/schedule.h>
#include <finegemm/core/smem_plan.h>

namespace finegemm {

/// Swizzle: how TMA permutes 16-byte chunks inside the rows that it writes to shared memory; the value is a row's width
/// in bytes. wgmma's descriptors follow the same rule. PTX ISA, "Tensor swizzling modes".
enum class Swizzle : uint32_t { None = 0, B32 = 32, B64 = 64, B128 = 128 };

struct TmaBox {
    uint32_t rows = 0, cols = 0;  // cols: elements along the contiguous dimension
    uint32_t element_bytes = 1;
    Swizzle swizzle = Swizzle::None;
    constexpr bool operator==(const TmaBox&) const = default;
};

/// Box of one load: `rows` rows of a tile of A or B, and one k-block.
FG_HD constexpr TmaBox load_box(uint32_t rows) {
    return {.rows = rows, .cols = GemmConfig::kTileK, .element_bytes = 1, .swizzle = Swizzle::B128};
}

/// The boxes of one operand, for whole tiles and for the last one.
struct LoadBoxes {
    TmaBox whole, last;
    constexpr bool operator==(const LoadBoxes&) const = default;
};
FG_HD constexpr LoadBoxes load_boxes(uint32_t extent, uint32_t tile, uint32_t sharers) {
    return {load_box(tile / sharers), load_box(rows_of_last_tile(extent, tile, sharers) / sharers)};
}
FG_HD constexpr LoadBoxes a_boxes(const GemmConfig& c, uint32_t m) { return load_boxes(m, c.tile_m, c.a_sharers()); }
/// Box of one segment of B's rows.
FG_HD constexpr TmaBox b_segment_box(const GemmConfig& c, uint32_t segment) {
    return load_box(segment_cols(c, segment) / c.b_sharers());
}
/// Boxes of B's first segments. `last` is for the last segment that D is wide enough for, whichever that is.
FG_HD constexpr LoadBoxes b_boxes(const GemmConfig& c, uint32_t n) {
    return {b_segment_box(c, 0), load_box(b_rows_of_last(c, n) / c.b_sharers())};
}
/// Box of a panel of D in bf16: a warp's rows, in one of the widths.
FG_HD constexpr TmaBox d_box(uint32_t width) {
    return {.rows = kWarpRows,
            .cols = panel_width(width),
            .element_bytes = 2,
            .swizzle = static_cast<Swizzle>(panel_width(width) * 2)};
}
/// Box of a panel of D in f32.
inline constexpr TmaBox kF32DBox{
    .rows = kWarpRows, .cols = kF32PanelCols, .element_bytes = 4, .swizzle = Swizzle::B128};
/// Boxes have at most 256 rows, rows of a multiple of 16 bytes, and rows no wider than the swizzle.
FG_HD constexpr bool legal(const TmaBox& b) {
    const uint32_t row_bytes = b.cols * b.element_bytes;
    const uint32_t width = static_cast<uint32_t>(b.swizzle);
    return b.rows > 0 && b.rows <= 256 && b.cols > 0 && b.cols <= 256 && row_bytes % 16 == 0 &&
           (width == 0 || row_bytes <= width);
}

}  // namespace finegemm
