// Teams: math warpgroups that have the same rows of a tile, and how they share its k-blocks. Layer core.
// One warpgroup takes longer to start and promote a block of few rows than the tensor cores to multiply it; two that
// take turns keep them busy.
#pragma once

#include <finegemm/core/smem_plan.h>

namespace finegemm {

/// Which team a math warpgroup is of, and which part of the rows it has.
FG_HD constexpr uint32_t team_of(const GemmConfig& c, uint32_t warpgroup) {
    return c.teams() > 1 ? warpgroup / c.row_warpgroups() : 0;
}
FG_HD constexpr uint32_t row_part_of(const GemmConfig& c, uint32_t warpgroup) {
    return c.row_warpgroups() == 1 ? 0 : warpgroup - team_of(c, warpgroup) * c.row_warpgroups();
}

/// Where the rows of a math warpgroup begin in a tile, and how far apart those of its WGMMAs do. In groups warpgroups
/// have 64 rows in turn, so that they share the rows of a tile that lacks some.
FG_HD constexpr uint32_t first_row_of(const GemmConfig& c, uint32_t warpgroup) {
    return row_part_of(c, warpgroup) * (c.row_groups() ? 64 : c.rows_per_warpgroup());
}
FG_HD constexpr uint32_t rows_apart(const GemmConfig& c) { return c.row_groups() ? c.row_warpgroups() * 64 : 64; }

/// The slab of D that a math warp stores from: one team stores a tile.
FG_HD constexpr uint32_t slab_of(const GemmConfig& c, uint32_t warp) {
    return c.teams() > 1 ? row_part_of(c, warp / 4) * 4 + warp % 4 : warp;
}

/// How many of `k_blocks` are a team's: every teams-th, from that of its own number on.
FG_HD constexpr uint32_t blocks_of_team(uint32_t k_blocks, uint32_t teams, uint32_t team) {
    return teams > 1 ? ceil_div(k_blocks - team, teams) : k_blocks;
}

/// Of two teams the one that does not have the last block.
FG_HD constexpr uint32_t earlier_team(uint32_t k_blocks) { return k_blocks % 2; }

// Where its sums lie in shared memory until the other team adds them: in place of B in the first stages of its own,
// which nobody else reads. Four of each thread's sums take 2 KB.
FG_HD constexpr uint32_t team_sums_per_stage(const GemmConfig& c) { return c.tile_n / 16 * 4; }

/// The stage for four sums from register `reg` on, counted from the team's first one.
FG_HD constexpr uint32_t team_sums_stage(const GemmConfig& c, uint32_t reg) {
    return reg / team_sums_per_stage(c) * c.teams();
}
/// Their first byte in B of this stage.
FG_HD constexpr uint32_t team_sums_offset(const GemmConfig& c, uint32_t thread, uint32_t reg) {
    return (reg % team_sums_per_stage(c) / 4 * 128 + thread) * 16;
}

}  // namespace finegemm
