// Where each object of a GEMM kernel lies in shared memory.
// Layer core. The host asks for `total`, the kernel adds the offsets: one function, so they cannot differ.
#pragma once

#include <finegemm/core/registers.h>
#include <finegemm/core/scale_copies.h>
#include <finegemm/core/scale_parts.h>

namespace finegemm {

/// Rows of D that a warp has of the 64 of a WGMMA.
inline constexpr uint32_t kWarpRows = 16;

/// Columns of the widest slab that a kernel may have: 128 bytes of a row; in bf16 what divides a tile's first run, the
/// most of 64, 48, 32 and 16 columns.
FG_HD constexpr uint32_t widest_slab(const GemmConfig& c) {
    if (c.output == Output::F32) return 32;
    uint32_t cols = 64;
    while (run_cols(c, 0) % cols != 0) cols -= 16;
    return cols;
}

/// Columns of D that a warp brings to shared memory at once where it writes D itself, of a tile's first run; of other
/// runs as many, or all if there are fewer. Where the ring leaves no room for the widest slab, less in bf16.
FG_HD constexpr uint32_t slab_cols(const GemmConfig& c);

/// Row pitch of a warp's slab of so many columns, in bytes. In bf16 an odd number of 16-byte pieces, so that those of
/// eight rows, which stmatrix writes at once, lie in different banks; in f32 an odd number of 32-byte pieces, so that
/// those of four rows do, which half a warp writes at once.
FG_HD constexpr uint32_t slab_pitch(const GemmConfig& c, uint32_t cols) {
    return (cols / 8 | 1) * (c.output == Output::F32 ? 32 : 16);
}
FG_HD constexpr uint32_t slab_pitch(const GemmConfig& c) { return slab_pitch(c, slab_cols(c)); }

/// Byte of a slab at which an element of a row lies.
FG_HD constexpr uint32_t slab_offset(const GemmConfig& c, RowCol at) {
    return at.row * slab_pitch(c) + at.col * (c.output == Output::F32 ? 4 : 2);
}

/// Pieces of 16 bytes that each lane takes to D from `cols` columns of a slab.
FG_HD constexpr uint32_t slab_pieces(const GemmConfig& c, uint32_t cols) {
    return cols / (c.output == Output::F32 ? 8 : 16);
}

/// The i-th of them: rows one after the other, so that a warp writes whole ones.
FG_HD constexpr RowCol slab_piece(const GemmConfig& c, uint32_t cols, uint32_t lane, uint32_t i) {
    const uint32_t piece = i * 32 + lane, pieces = cols / (c.output == Output::F32 ? 4 : 8);
    return {.row = piece / pieces, .col = piece % pieces * (c.output == Output::F32 ? 4 : 8)};
}

// Where there is room for a whole tile of D beside the ring, the copy engine writes it, in boxes (stages_tiles).

/// Widths of boxes, in columns: what runs are made of, of 128 bytes of a row at most.
inline constexpr uint32_t kBoxWidths = 3;
FG_HD constexpr uint32_t box_width(uint32_t i) { return 64 >> i; }

/// Boxes of a tile in f32 have 128 bytes of a row, too. Here the copy engine brings what D has, as well.
inline constexpr uint32_t kF32BoxCols = 32, kF32BoxBytes = kWarpRows * kF32BoxCols * 4;

/// Columns of a tile that come to D by way of shared memory: all but a run of eight.
FG_HD constexpr uint32_t cols_through_shared(const GemmConfig& c) { return c.tile_n / 16 * 16; }

/// The i-th box of a tile: its columns, and which of the widths it has. Wide ones come first.
struct BoxOfD {
    uint32_t first, width;
};
/// Boxes that a tile has of one of the widths, and of all.
FG_HD constexpr uint32_t boxes_of_width(const GemmConfig& c, uint32_t i) {
    return i == 0 ? c.tile_n / 64 : c.tile_n / box_width(i) % 2;
}
FG_HD constexpr uint32_t boxes_of_d(const GemmConfig& c) {
    if (c.output == Output::F32) return c.tile_n / kF32BoxCols;
    return boxes_of_width(c, 0) + boxes_of_width(c, 1) + boxes_of_width(c, 2);
}
FG_HD constexpr BoxOfD box_of_d(const GemmConfig& c, uint32_t i) {
    const uint32_t wide = c.tile_n / 64;
    if (i < wide) return {.first = i * 64, .width = 0};
    return i == wide && c.tile_n / 32 % 2 == 1 ? BoxOfD{.first = wide * 64, .width = 1}
                                               : BoxOfD{.first = cols_through_shared(c) - 16, .width = 2};
}

/// Byte of a box of `cols` columns at which a piece of sixteen bytes lies, as the copy engine swizzles rows of 128, 64
/// and 32 bytes. Those of eight rows, which stmatrix writes at once, lie in different banks. PTX ISA, "Tensor swizzling
/// modes".
FG_HD constexpr uint32_t box_offset(uint32_t cols, RowCol at) {
    const uint32_t pieces = cols / 8, piece = at.col / 8 ^ at.row * pieces / 8 % pieces;
    return at.row * cols * 2 + piece * 16;
}

/// Byte of such boxes at which an element of a warp's rows lies.
FG_HD constexpr uint32_t f32_box_offset(RowCol at) {
    const RowCol halves = {at.row, at.col % kF32BoxCols * 2};  // as of bf16, of which 128 bytes have twice as many
    return at.col / kF32BoxCols * kF32BoxBytes + box_offset(64, halves) + at.col % 4 * 4;
}
/// The accumulator register that a lane writes there in its turn `turn`. A warp writes to eight rows at once: if all
/// were in the same column, each would be in the banks of another one.
FG_HD constexpr uint32_t f32_box_register(uint32_t lane, uint32_t turn) { return turn ^ lane / 4 % 2; }

/// Bytes of a warp's rows of a tile, of 64, in boxes one after the other: they begin where swizzling begins anew.
FG_HD constexpr uint32_t staged_bytes(const GemmConfig& c) {
    return c.output == Output::F32 ? kWarpRows * c.tile_n * 4 : align_up(kWarpRows * cols_through_shared(c) * 2, 1024);
}

struct SmemPlan {
    uint32_t a, b;            // stages x tile, e4m3, 128-byte rows
    uint32_t d;               // of each warp that stores: its part of a tile of D, or a slab
    uint32_t partials;        // split-K: k_splits x slice of the tile, f32
    uint32_t sfa, sfb;        // stages x scales of one k-block, f32, or the FactorRow of each
    uint32_t zeros;           // FactorRows: of each math warpgroup kZeroRows
    uint32_t tiles;           // grouped: stages x the Tile that begins there
    uint32_t full, empty;     // mbarriers, one per stage
    uint32_t partials_full;   // mbarriers, one per warpgroup that has rows of its own
    uint32_t team_sums_full;  // mbarrier, where there are teams
    uint32_t d_full;          // mbarriers, one per math warp, where what D has is brought
    uint32_t total;
    // Distance from one stage (or warp, or warpgroup) to the next.
    uint32_t a_stage, b_stage, d_warp, partials_warpgroup, sfa_stage, sfb_stage, tile_stage;
};

/// Scales of B that a stage has room for: one for each row; or one for each run, their number rounded up to a power of
/// two.
FG_HD constexpr uint32_t b_scales(const GemmConfig& c) {
    if (c.row_b_scales()) return c.tile_n;
    return runs(c) > 2 ? 4 : 2;
}

/// Columns that one rank of a split-K cluster reduces and stores; the last rank may have fewer.
FG_HD constexpr uint32_t split_cols(const GemmConfig& c) { return align_up(ceil_div(c.tile_n, c.k_splits()), 8); }

/// Row pitch of received partial sums, in floats: 4 more than the columns, against bank conflicts.
FG_HD constexpr uint32_t split_pitch(const GemmConfig& c) { return split_cols(c) + 4; }

/// With room for whole tiles of D, or for slabs of so many columns.
FG_HD constexpr SmemPlan smem_plan(const GemmConfig& c, bool stages_tiles, uint32_t cols) {
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
    p.d_warp = split ? 0 : stages_tiles ? c.wgmmas_m() * staged_bytes(c) : kWarpRows * slab_pitch(c, cols);
    p.partials_warpgroup = split ? c.k_splits() * c.rows_per_warpgroup() * split_pitch(c) * 4 : 0;
    const uint32_t scale = factors_by_wgmma(c) ? kFactorRowBytes : 4;
    p.sfa_stage = (c.tile_m + (c.row_groups() ? kScalePiece : 0)) * scale;
    p.sfb_stage = b_scales(c) * scale;
    p.tile_stage = c.grouped() ? 16 : 0;
    p.a = take(c.stages * p.a_stage, 1024);
    p.b = take(c.stages * p.b_stage, 1024);
    p.d = take(c.row_warpgroups() * 4 * p.d_warp, stages_tiles ? 1024 : 16);
    p.partials = take(c.row_warpgroups() * p.partials_warpgroup, 16);
    p.sfa = take(c.stages * p.sfa_stage, 16);
    p.sfb = take(c.stages * p.sfb_stage, c.row_b_scales() ? 16 : 8);
    // Behind sfb, whose rows a wgmma reads twice: compute-sanitizer takes that for as many bytes behind them.
    p.zeros = take(factors_by_wgmma(c) ? c.math_warpgroups * kZeroRows * kFactorRowBytes : 0, 16);
    p.tiles = take(c.stages * p.tile_stage, 16);
    p.full = take(c.stages * 8, 8);
    p.empty = take(c.stages * 8, 8);
    p.partials_full = take(split ? c.row_warpgroups() * 8 : 0, 8);
    p.team_sums_full = take(c.teams() > 1 ? 8 : 0, 8);
    p.d_full = take(stages_tiles && c.output == Output::F32 ? c.math_warpgroups * 4 * 8 : 0, 8);
    p.total = align_up(top, 16) + 1024;  // the driver aligns dynamic shared memory to 16 only; the kernel rounds up
    return p;
}

/// What a CTA may ask for that has an SM of its own, and what each CTA takes besides. CUDA C++ Programming Guide,
/// "Compute capabilities", 9.0.
inline constexpr uint32_t kMostShared = 227 * 1024, kReservedShared = 1024;
FG_HD constexpr uint32_t most_shared(const GemmConfig& c) {
    return (kMostShared + kReservedShared) / c.ctas_per_sm - kReservedShared;
}

FG_HD constexpr uint32_t slab_cols(const GemmConfig& c) {
    uint32_t cols = widest_slab(c);
    if (c.output == Output::F32) return cols;
    while (cols > 16 && (run_cols(c, 0) % cols != 0 || smem_plan(c, false, cols).total > most_shared(c))) cols -= 16;
    return cols;
}

/// Whether the copy engine writes D, so that the math warps go on with the next tile at once: where there is room for a
/// tile. Not where each CTA has one tile, and in bf16 not where another CTA works while this one stores.
FG_HD constexpr bool stages_tiles(const GemmConfig& c) {
    const bool f32 = c.output == Output::F32, boxes = c.wgmmas_m() == 1 && c.tile_n % kF32BoxCols == 0;
    const bool pays = f32 ? boxes : c.ctas_per_sm == 1;
    return pays && c.k_splits() == 1 && c.teams() == 1 && smem_plan(c, true, 0).total <= most_shared(c);
}
/// Whether it brings what D has, too, to which sums are added in shared memory, not in L2.
FG_HD constexpr bool brings_d(const GemmConfig& c) { return c.output == Output::F32 && stages_tiles(c); }
FG_HD constexpr SmemPlan smem_plan(const GemmConfig& c) { return smem_plan(c, stages_tiles(c), slab_cols(c)); }

}  // namespace finegemm
