// How D lies in shared memory before it is stored: in strips, which math warps store, or in panels, which TMA does.
// Layer gemm.
#pragma once

#include <finegemm/gemm/mx_scale.h>
#include <finegemm/gemm/segments.h>

namespace finegemm {

/// Rows of D that each warp has of a 64-row WGMMA.
inline constexpr uint32_t kWarpRows = 16;

/// Bytes of an element of D.
FG_HD constexpr uint32_t bytes_of(Output output) { return output == Output::F32 ? 4 : 2; }

// Strip: the columns of a warp's sixteen rows that it writes to shared memory at once, and takes from there to D in
// whole pieces of sixteen bytes. Segments with fewer columns than a strip have one strip of all.

/// Columns of the widest strip that a kernel may have: 128 bytes of a row; in bf16 the most of 64, 48, 32 and 16
/// columns that divides a tile's first segment.
FG_HD constexpr uint32_t widest_strip(const GemmConfig& c) {
    if (c.output == Output::F32) return 32;
    uint32_t cols = 64;
    while (segment_cols(c, 0) % cols != 0) cols -= 16;
    return cols;
}

/// Row pitch of a warp's strip of so many columns, in bytes. In bf16 an odd number of 16-byte pieces, so that those of
/// eight rows, which stmatrix writes at once, lie in different banks; in f32 an odd number of 32-byte pieces, so that
/// those of four rows do, which half a warp writes at once.
FG_HD constexpr uint32_t strip_pitch(const GemmConfig& c, uint32_t cols) {
    return (cols / 8 | 1) * (c.output == Output::F32 ? 32 : 16);
}

/// The byte of a strip at which an element of a row lies.
FG_HD constexpr uint32_t strip_offset(const GemmConfig& c, uint32_t pitch, RowCol at) {
    return at.row * pitch + at.col * bytes_of(c.output);
}

/// Pieces of 16 bytes that each lane takes to D from `cols` columns of a strip.
FG_HD constexpr uint32_t strip_pieces(const GemmConfig& c, uint32_t cols) {
    return cols / (c.output == Output::F32 ? 8 : 16);
}

/// Row and column of a lane's i-th piece of a strip: rows one after the other, so that a warp stores whole ones.
FG_HD constexpr RowCol strip_piece(const GemmConfig& c, uint32_t cols, uint32_t lane, uint32_t i) {
    const uint32_t piece = i * 32 + lane, pieces = cols / (c.output == Output::F32 ? 4 : 8);
    return {.row = piece / pieces, .col = piece % pieces * (c.output == Output::F32 ? 4 : 8)};
}

/// Swapped, a warpgroup has 64 columns of all rows of a tile, each of its warps sixteen, and a strip together: so many
/// rows, of 128 bytes as in a panel. Half of them leave room for one more stage of decoded operands.
inline constexpr uint32_t kSwappedCols = 64;
FG_HD constexpr uint32_t swapped_strip_rows(const GemmConfig& c) {
    return min(c.tile_m, c.decodes ? 32 : 64);
}
FG_HD constexpr uint32_t swapped_strip_bytes(const GemmConfig& c) { return swapped_strip_rows(c) * kSwappedCols * 2; }
/// The column of D, of a WGMMA's 64, that stands in its row `row`.
FG_HD constexpr uint32_t swapped_col(const GemmConfig& c, uint32_t row) { return c.decodes ? mx_row_of_b(row) : row; }
/// Row and column of the i-th piece of sixteen bytes that a thread of the warpgroup takes from such a strip to D.
FG_HD constexpr RowCol swapped_piece(uint32_t thread, uint32_t i) {
    return {.row = i * 16 + thread / 8, .col = thread % 8 * 8};
}

// Panel: a warp's 16 rows and up to 128 bytes of each, which are one TMA box.

/// Widths of panels in bf16, in columns: 64, 32 and 16, of which segments are made (kPanelWidths).
FG_HD constexpr uint32_t panel_width(uint32_t i) { return 64 >> i; }

/// Panels in f32 have 128 bytes of a row. TMA loads the old D into them, as well.
inline constexpr uint32_t kF32PanelCols = 32, kF32PanelBytes = kWarpRows * kF32PanelCols * 4;

/// Columns of a tile that go through shared memory: all but a segment of eight, as `stmatrix` writes sixteen.
FG_HD constexpr uint32_t cols_through_shared(const GemmConfig& c) { return c.tile_n / 16 * 16; }

/// A panel: its first column in the tile, and the index of its width. Wide ones come first.
struct DPanel {
    uint32_t first, width;
};
/// Number of panels of the i-th width in a tile, and of all.
FG_HD constexpr uint32_t panels_of_width(const GemmConfig& c, uint32_t i) {
    return i == 0 ? c.tile_n / 64 : c.tile_n / panel_width(i) % 2;
}
FG_HD constexpr uint32_t d_panels(const GemmConfig& c) {
    if (c.output == Output::F32) return c.tile_n / kF32PanelCols;
    return panels_of_width(c, 0) + panels_of_width(c, 1) + panels_of_width(c, 2);
}
FG_HD constexpr DPanel d_panel(const GemmConfig& c, uint32_t i) {
    const uint32_t wide = c.tile_n / 64;
    if (i < wide) return {.first = i * 64, .width = 0};
    return i == wide && c.tile_n / 32 % 2 == 1 ? DPanel{.first = wide * 64, .width = 1}
                                               : DPanel{.first = cols_through_shared(c) - 16, .width = 2};
}

/// Byte of a panel of `cols` columns at which a piece of sixteen bytes lies, as TMA swizzles rows of 128, 64 and 32
/// bytes. Pieces of eight rows, which stmatrix writes at once, lie in different banks. PTX ISA, "Tensor swizzling
/// modes".
FG_HD constexpr uint32_t panel_offset(uint32_t cols, RowCol at) {
    const uint32_t pieces = cols / 8, piece = at.col / 8 ^ at.row * pieces / 8 % pieces;
    return at.row * cols * 2 + piece * 16;
}

/// Byte of a warp's f32 panels at which an element of its rows lies.
FG_HD constexpr uint32_t f32_panel_offset(RowCol at) {
    const RowCol halves = {at.row, at.col % kF32PanelCols * 2};  // as of bf16, of which 128 bytes have twice as many
    return at.col / kF32PanelCols * kF32PanelBytes + panel_offset(64, halves) + at.col % 4 * 4;
}
/// The accumulator register that a lane writes to its panels in step `step`. A warp writes to eight rows at once: if
/// all were in the same column, each would be in the banks of another one.
FG_HD constexpr uint32_t f32_panel_register(uint32_t lane, uint32_t step) { return step ^ lane / 4 % 2; }

/// Bytes of a warp's panels for one 64-row WGMMA, one after the other: they begin where swizzling begins anew.
FG_HD constexpr uint32_t panels_bytes(const GemmConfig& c) {
    return c.output == Output::F32 ? kWarpRows * c.tile_n * 4 : align_up(kWarpRows * cols_through_shared(c) * 2, 1024);
}

}  // namespace finegemm
