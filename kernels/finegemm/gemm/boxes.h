// The boxes of the tensor maps of a GEMM. Layer gemm.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/gemm/schedule.h>

namespace finegemm {

/// Box of one load: `rows` rows of a tile of A or B, and one k-block. Of an MN-major operand it always has kMnBox, and
/// a tile as many boxes as it needs.
FG_HD constexpr TmaBox load_box(const Operand& operand, uint32_t rows) {
    const uint32_t bytes = bytes_of(operand.element);
    return {.rows = operand.major == Major::MN ? kMnBox : rows,
            .cols = kRowBytes / bytes,
            .element_bytes = bytes,
            .swizzle = Swizzle::B128};
}

/// The boxes of one operand, for whole tiles and for the last one.
struct LoadBoxes {
    TmaBox whole, last;
    constexpr bool operator==(const LoadBoxes&) const = default;
};
FG_HD constexpr LoadBoxes load_boxes(const Operand& operand, uint32_t extent, uint32_t tile, uint32_t sharers) {
    return {load_box(operand, tile / sharers), load_box(operand, rows_of_last_tile(extent, tile, sharers) / sharers)};
}
FG_HD constexpr LoadBoxes a_boxes(const GemmConfig& c, uint32_t m) {
    return load_boxes(c.a, m, c.tile_m, c.a_sharers());
}
/// Box of one segment of B's rows.
FG_HD constexpr TmaBox b_segment_box(const GemmConfig& c, uint32_t segment) {
    return load_box(c.b, segment_cols(c, segment) / c.b_sharers());
}
/// Boxes of B's first segments. `last` is for the last segment that D is wide enough for, whichever that is.
FG_HD constexpr LoadBoxes b_boxes(const GemmConfig& c, uint32_t n) {
    return {b_segment_box(c, 0), load_box(c.b, b_rows_of_last(c, n) / c.b_sharers())};
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

}  // namespace finegemm
