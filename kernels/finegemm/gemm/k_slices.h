// K-slices: math warpgroups that compute the same rows of a tile, each over every second k-block. Layer gemm.
// One warpgroup takes longer to start and promote a block of few rows than the tensor cores to multiply it; two that
// alternate keep them busy.
#pragma once

#include <finegemm/gemm/kernel_plan.h>

namespace finegemm {

/// The k-slice of a math warpgroup, and its part of the rows.
FG_HD constexpr uint32_t k_slice_of(const GemmConfig& c, uint32_t warpgroup) {
    return c.k_slices() > 1 ? warpgroup / c.row_warpgroups() : 0;
}
FG_HD constexpr uint32_t row_part_of(const GemmConfig& c, uint32_t warpgroup) {
    return c.row_warpgroups() == 1 ? 0 : warpgroup - k_slice_of(c, warpgroup) * c.row_warpgroups();
}

/// Swapped, the 64 columns of a math warpgroup in a tile. K-slices have the same ones.
FG_HD constexpr uint32_t swapped_part_of(const GemmConfig& c, uint32_t warpgroup) {
    return c.swaps_mx ? 0 : c.decodes ? row_part_of(c, warpgroup) : warpgroup;
}

/// Rows from the first one of one of a warpgroup's WGMMAs to that of the next. In groups of rows the warpgroups' 64-row
/// parts interleave, so that they share the rows of a tile that lacks some.
FG_HD constexpr uint32_t rows_apart(const GemmConfig& c) { return c.row_groups() ? c.row_warpgroups() * 64 : 64; }
/// First row of a math warpgroup in a tile.
FG_HD constexpr uint32_t first_row_of(const GemmConfig& c, uint32_t warpgroup) {
    return row_part_of(c, warpgroup) * (rows_apart(c) > 64 ? 64 : c.rows_per_warpgroup());
}

/// The strip of D that a math warp stores from: only one k-slice stores a tile.
FG_HD constexpr uint32_t strip_of(const GemmConfig& c, uint32_t warp) {
    return c.k_slices() > 1 ? row_part_of(c, warp / 4) * 4 + warp % 4 : warp;
}

/// Number of k-blocks of a slice: every k_slices-th of `k_blocks`, beginning with the block of its own number.
FG_HD constexpr uint32_t blocks_of_slice(uint32_t k_blocks, uint32_t k_slices, uint32_t k_slice) {
    return k_slices > 1 ? ceil_div(k_blocks - k_slice, k_slices) : k_blocks;
}

/// The earlier of two k-slices: the one without the last block.
FG_HD constexpr uint32_t earlier_slice(uint32_t k_blocks) { return k_blocks % 2; }

// Shared memory for the earlier slice's sums, until the other one adds them: B's room in its own first stages, which
// nobody else reads. Four of each thread's sums take 2 KB.
FG_HD constexpr uint32_t slice_sums_per_stage(const GemmConfig& c) { return c.tile_n / 16 * 4; }

/// The stage for four sums from register `reg` on, counted from the slice's first stage.
FG_HD constexpr uint32_t slice_sums_stage(const GemmConfig& c, uint32_t reg) {
    return reg / slice_sums_per_stage(c) * c.k_slices();
}
/// First byte of four sums, from register `reg` on, in B of their stage.
FG_HD constexpr uint32_t slice_sums_offset(const GemmConfig& c, uint32_t thread, uint32_t reg) {
    return (reg % slice_sums_per_stage(c) / 4 * 128 + thread) * 16;
}

}  // namespace finegemm
