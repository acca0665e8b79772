// How many arrivals complete each mbarrier of the kernel: derived from the roles, not written as literals.
// Layer core.
#pragma once

#include <finegemm/core/config.h>

namespace finegemm {

inline constexpr uint32_t kWarpSize = 32;

/// Warps of the producer warpgroup.
inline constexpr uint32_t kProducerWarps = 4;

/// Whether the producer warps take turns with the k-blocks: each brings all of every fourth one, tiles and scales. Else
/// one loads the tiles of all of them, and the others load scales. But a thread takes 190 clocks to start two loads and
/// 240 to start three, and three warps are no faster with the scales: small tiles are multiplied in less. Larger ones
/// gain nothing by turns, or lose up to 3% (docs/pipeline.md, "Round-robin producers").
///
/// A warp's blocks are all of one team, whose part of the ring has room for the next one of them: so a stage that it
/// waits for is one round behind at most, and a parity tells that.
FG_HD constexpr bool producers_take_turns(const GemmConfig& c) {
    const bool can = c.stages >= kProducerWarps && kProducerWarps % c.teams() == 0;
    const bool plain = !c.grouped() && !c.row_b_scales() && c.scales == ScaleLayout::Any;
    return can && plain && c.a_sharers() * c.b_sharers() == 1 && c.tile_m * c.tile_n < 128 * 128;
}

/// Those that load scales, where they do not.
inline constexpr uint32_t kScaleWarps = kProducerWarps - 1;

/// K-blocks whose scales are sixteen bytes of a row, where scales are row-major.
inline constexpr uint32_t kScaleRun = 4;

/// K-blocks of a run as a scale warp holds it, which for tiles of 136 columns has no registers for four.
FG_HD constexpr uint32_t scale_run(const GemmConfig& c) { return c.row_b_scales() && c.tile_n > 128 ? 2 : kScaleRun; }

/// Scale warps that take turns with runs. A parity tells a round of the ring from the next one only, so a warp may not
/// skip as many stages as the ring has.
FG_HD constexpr uint32_t dealing_warps(const GemmConfig& c) {
    const uint32_t most = 1 + (c.stages - 1) / scale_run(c);
    return min(most, scale_run(c) < kScaleRun ? kScaleWarps : 2);  // three are no faster with runs of four
}

/// Lanes that arrive when a warp says something. One does, after all have met. compute-sanitizer's racecheck takes what
/// the others did before for a race; for it, kernels are built in which each lane arrives (2 to 6% slower).
#ifdef FINEGEMM_EVERY_LANE_ARRIVES
inline constexpr uint32_t kLanesArrive = kWarpSize;
#else
inline constexpr uint32_t kLanesArrive = 1;
#endif

/// A stage is full when the TMA warp has announced its bytes (and they came: transaction count) and when the scales of
/// every lane of a scale warp are there.
FG_HD constexpr uint32_t full_arrivals(const GemmConfig&) { return 1 + kWarpSize; }

/// A stage is empty when every math warp that reads it has said so: those of one team of this CTA, and with multicast
/// of all CTAs of the cluster, since a load of this one overwrites the stage in all of them.
FG_HD constexpr uint32_t empty_arrivals(const GemmConfig& c) {
    return 4 * c.row_warpgroups() * c.a_sharers() * c.b_sharers() * kLanesArrive;
}

/// Sums that a team leaves to another one are there when each of its warps has said so.
FG_HD constexpr uint32_t team_sums_arrivals(const GemmConfig& c) { return 4 * c.row_warpgroups() * kLanesArrive; }

/// CTAs whose producers wait for this CTA's math warps.
FG_HD constexpr uint32_t producers_served(const GemmConfig& c) { return c.a_sharers() * c.b_sharers(); }

}  // namespace finegemm
