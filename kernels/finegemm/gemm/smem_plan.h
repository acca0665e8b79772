// Where each object of a GEMM kernel lies in shared memory.
// Layer gemm. The host asks for `total`, the kernel adds the offsets: one function, so they cannot differ.
#pragma once

#include <finegemm/gemm/registers.h>
#include <finegemm/gemm/scale_copies.h>
#include <finegemm/gemm/segments.h>
#include <finegemm/gemm/split_scale.h>

namespace finegemm {

/// Rows of D that each warp has of a 64-row WGMMA.
inline constexpr uint32_t kWarpRows = 16;

/// Columns of the widest strip that a kernel may have: 128 bytes of a row; in bf16 the most of 64, 48, 32 and 16
/// columns that divides a tile's first segment.
FG_HD constexpr uint32_t widest_strip(const GemmConfig& c) {
    if (c.output == Output::F32) return 32;
    uint32_t cols = 64;
    while (segment_cols(c, 0) % cols != 0) cols -= 16;
    return cols;
}

/// Columns of a strip: what a warp writes to shared memory at once where it stores D itself. Segments with fewer
/// columns have one strip of all. In bf16 a strip is narrower than the widest where the ring leaves no room for that.
FG_HD constexpr uint32_t strip_cols(const GemmConfig& c);

/// Row pitch of a warp's strip of so many columns, in bytes. In bf16 an odd number of 16-byte pieces, so that those of
/// eight rows, which stmatrix writes at once, lie in different banks; in f32 an odd number of 32-byte pieces, so that
/// those of four rows do, which half a warp writes at once.
FG_HD constexpr uint32_t strip_pitch(const GemmConfig& c, uint32_t cols) {
    return (cols / 8 | 1) * (c.output == Output::F32 ? 32 : 16);
}
FG_HD constexpr uint32_t strip_pitch(const GemmConfig& c) { return strip_pitch(c, strip_cols(c)); }

/// Byte of a strip at which an element of a row lies.
FG_HD constexpr uint32_t strip_offset(const GemmConfig& c, RowCol at) {
    return at.row * strip_pitch(c) + at.col * (c.output == Output::F32 ? 4 : 2);
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

// Where there is room for a whole tile of D beside the ring, TMA stores it in panels (uses_tma_store): a warp's 16 rows
// and up to 128 bytes of each, which are one TMA box.

/// Widths of panels in bf16, in columns: 64, 32 and 16, of which segments are made.
inline constexpr uint32_t kPanelWidths = 3;
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

struct SmemPlan {
    uint32_t a, b;             // stages x tile, e4m3, 128-byte rows
    uint32_t d;                // for each warp that stores: its panels of a tile of D, or a strip
    uint32_t partials;         // split-K: k_splits x share of the tile, f32
    uint32_t sfa, sfb;         // stages x scales of one k-block, f32, or the SplitScale of each
    uint32_t zeros;            // kZeroRows SplitScales for each math warpgroup
    uint32_t tiles;            // grouped: stages x the Tile that begins there
    uint32_t full, empty;      // mbarriers, one per stage
    uint32_t partials_full;    // mbarriers, one per warpgroup that has rows of its own
    uint32_t slice_sums_full;  // mbarrier, where there are k-slices
    uint32_t d_full;           // mbarriers, one per math warp, where the old D is loaded
    uint32_t total;
    // Distance from one stage (or warp, or warpgroup) to the next.
    uint32_t a_stage, b_stage, d_warp, partials_warpgroup, sfa_stage, sfb_stage, tile_stage;
};

/// Scales of B that a stage has room for: one for each row; or one for each segment, their number rounded up to a power
/// of two.
FG_HD constexpr uint32_t b_scales(const GemmConfig& c) {
    if (c.row_b_scales()) return c.tile_n;
    return n_segments(c) > 2 ? 4 : 2;
}

/// Columns that one rank of a split-K cluster reduces and stores; the last rank may have fewer.
FG_HD constexpr uint32_t split_cols(const GemmConfig& c) { return align_up(ceil_div(c.tile_n, c.k_splits()), 8); }

/// Row pitch of received partial sums, in floats: 4 more than the columns, against bank conflicts.
FG_HD constexpr uint32_t split_pitch(const GemmConfig& c) { return split_cols(c) + 4; }

/// The plan with room for whole tiles of D (`tma_store`), or for strips of `cols` columns.
FG_HD constexpr SmemPlan smem_plan(const GemmConfig& c, bool tma_store, uint32_t cols) {
    SmemPlan p{};
    uint32_t top = 0;
    auto take = [&top](uint32_t bytes, uint32_t alignment) {
        const uint32_t at = align_up(top, alignment);
        top = at + bytes;
        return at;
    };
    const bool split = c.k_splits() > 1;
    p.a_stage = c.tile_m * GemmConfig::kTileK;  // a multiple of 1024: eight 128-byte rows, one swizzle atom
    p.b_stage = c.tile_n * GemmConfig::kTileK;
    p.d_warp = split ? 0 : tma_store ? c.wgmmas_m() * panels_bytes(c) : kWarpRows * strip_pitch(c, cols);
    p.partials_warpgroup = split ? c.k_splits() * c.rows_per_warpgroup() * split_pitch(c) * 4 : 0;
    const uint32_t scale = tensor_core_scales(c) ? kSplitScaleBytes : 4;
    p.sfa_stage = (c.tile_m + (c.row_groups() ? kScalePiece : 0)) * scale;
    p.sfb_stage = b_scales(c) * scale;
    p.tile_stage = c.grouped() ? 16 : 0;
    p.a = take(c.stages * p.a_stage, 1024);
    p.b = take(c.stages * p.b_stage, 1024);
    p.d = take(c.row_warpgroups() * 4 * p.d_warp, tma_store ? 1024 : 16);
    p.partials = take(c.row_warpgroups() * p.partials_warpgroup, 16);
    p.sfa = take(c.stages * p.sfa_stage, 16);
    p.sfb = take(c.stages * p.sfb_stage, c.row_b_scales() ? 16 : 8);
    // Behind sfb, whose rows a wgmma reads twice: compute-sanitizer takes that for as many bytes behind them.
    p.zeros = take(tensor_core_scales(c) ? c.math_warpgroups * kZeroRows * kSplitScaleBytes : 0, 16);
    p.tiles = take(c.stages * p.tile_stage, 16);
    p.full = take(c.stages * 8, 8);
    p.empty = take(c.stages * 8, 8);
    p.partials_full = take(split ? c.row_warpgroups() * 8 : 0, 8);
    p.slice_sums_full = take(c.k_slices() > 1 ? 8 : 0, 8);
    p.d_full = take(tma_store && c.output == Output::F32 ? c.math_warpgroups * 4 * 8 : 0, 8);
    p.total = align_up(top, 16) + 1024;  // the driver aligns dynamic shared memory to 16 only; the kernel rounds up
    return p;
}

/// Shared memory of an SM that one CTA may ask for, and what each CTA takes besides. CUDA C++ Programming Guide,
/// "Compute capabilities", 9.0.
inline constexpr uint32_t kMostShared = 227 * 1024, kReservedShared = 1024;
FG_HD constexpr uint32_t most_shared(const GemmConfig& c) {
    return (kMostShared + kReservedShared) / c.ctas_per_sm - kReservedShared;
}

FG_HD constexpr uint32_t strip_cols(const GemmConfig& c) {
    uint32_t cols = widest_strip(c);
    if (c.output == Output::F32) return cols;
    while (cols > 16 && (segment_cols(c, 0) % cols != 0 || smem_plan(c, false, cols).total > most_shared(c)))
        cols -= 16;
    return cols;
}

/// Does TMA store D, so that the math warps go on with the next tile at once? Only with room for a whole tile; not
/// where each CTA has one tile, and in bf16 not where another CTA works while this one stores.
FG_HD constexpr bool uses_tma_store(const GemmConfig& c) {
    const bool f32 = c.output == Output::F32, whole_panels = c.wgmmas_m() == 1 && c.tile_n % kF32PanelCols == 0;
    const bool pays = f32 ? whole_panels : c.ctas_per_sm == 1;
    return pays && c.k_splits() == 1 && c.k_slices() == 1 && smem_plan(c, true, 0).total <= most_shared(c);
}
/// Does TMA load the old D (the epilogue's source), so that sums are added to it in shared memory, not in L2?
FG_HD constexpr bool loads_source(const GemmConfig& c) { return c.output == Output::F32 && uses_tma_store(c); }
FG_HD constexpr SmemPlan smem_plan(const GemmConfig& c) { return smem_plan(c, uses_tma_store(c), strip_cols(c)); }

}  // namespace finegemm
