// SmemPlan: where each object of a GEMM kernel lies in shared memory. Layer gemm. kernel_plan() makes it: the host asks
// for `total`, the kernel adds the offsets, so they cannot differ.
#pragma once

#include <finegemm/gemm/mx_scale.h>
#include <finegemm/gemm/scale_copies.h>
#include <finegemm/gemm/segments.h>
#include <finegemm/gemm/split_scale.h>

namespace finegemm {

struct SmemPlan {
    uint32_t a, b;             // stages x tile, e4m3, 128-byte rows
    uint32_t d;                // for each warp that stores: its panels of a tile of D, or a strip
    uint32_t partials;         // split-K: k_splits x share of the tile, f32
    uint32_t sfa, sfb;         // stages x scales of one k-block, f32, or the SplitScale or MxScale of each
    uint32_t zeros;            // kZeroRows SplitScales for each math warpgroup
    uint32_t tiles;            // grouped: stages x the Tile that begins there
    uint32_t full, empty;      // mbarriers, one per stage
    uint32_t partials_full;    // mbarriers, one per warpgroup that has rows of its own
    uint32_t slice_sums_full;  // mbarrier, where there are k-slices
    uint32_t d_full;           // mbarriers, one per math warp, where the old D is loaded
    uint32_t largest;          // kLargestTurns for each math warp: the largest of its rows in the neighbour's columns
    uint32_t largest_full;     // mbarriers, one for each of them
    uint32_t total;
    // Distance from one stage (or warp, or warpgroup) to the next.
    uint32_t a_stage, b_stage, d_warp, partials_warpgroup, sfa_stage, sfb_stage, tile_stage;
};

/// Tiles alternate in where a neighbour in the cluster puts what it tells of its rows: it may be one tile ahead.
inline constexpr uint32_t kLargestTurns = 2;

/// Scales of B that a stage has room for: one for each row; or one for each segment, their number rounded up to a power
/// of two.
FG_HD constexpr uint32_t b_scales(const GemmConfig& c) {
    if (c.row_b_scales()) return c.tile_n;
    return Segments::of(c).count() > 2 ? 4 : 2;
}

/// Columns of which the ranks of a split-K cluster have shares: those of a tile, of swapped products of each warpgroup;
/// and those that one rank reduces and stores. The last rank may have fewer.
FG_HD constexpr uint32_t split_of_cols(const GemmConfig& c) { return c.swapped() ? 64 : c.tile_n; }
FG_HD constexpr uint32_t split_cols(const GemmConfig& c) {
    return align_up(ceil_div(split_of_cols(c), c.k_splits()), 8);
}

/// Row pitch of received partial sums, in floats: 4 more than the columns, against bank conflicts.
FG_HD constexpr uint32_t split_pitch(const GemmConfig& c) { return split_cols(c) + 4; }

/// Likewise of swapped products, where those of all rows of a column lie one behind the other.
FG_HD constexpr uint32_t swapped_split_pitch(const GemmConfig& c) { return c.tile_m + 4; }

/// Shared memory of an SM that one CTA may ask for, and what each CTA takes besides. CUDA C++ Programming Guide,
/// "Compute capabilities", 9.0.
inline constexpr uint32_t kMostShared = 227 * 1024, kReservedShared = 1024;
FG_HD constexpr uint32_t most_shared(const GemmConfig& c) {
    return (kMostShared + kReservedShared) / c.ctas_per_sm - kReservedShared;
}

}  // namespace finegemm
