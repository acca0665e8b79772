// How many arrivals complete each mbarrier of the kernel: derived from the roles, not written as literals.
// Layer gemm.
#pragma once

#include <finegemm/gemm/config.h>

namespace finegemm {

/// Warps of the producer warpgroup.
inline constexpr uint32_t kProducerWarps = 4;

/// Round-robin producers: each warp loads every fourth k-block, tiles and scales. Else one warp loads all tiles and
/// three load scales. A thread takes 190 clocks to issue two loads and 240 to issue three, and three warps are no
/// faster with the scales: small tiles are multiplied in less. Larger tiles gain nothing from round-robin, or lose up
/// to 3% (docs/pipeline.md, "Round-robin producers").
///
/// All blocks of a warp are in one k-slice, whose part of the ring has room for the warp's next one: so a stage that it
/// waits for is one round behind at most, which a parity can tell.
FG_HD constexpr bool round_robin_producers(const GemmConfig& c) {
    const bool can = c.stages >= kProducerWarps && kProducerWarps % c.k_slices() == 0;
    const bool plain = !c.grouped() && !c.row_b_scales() && c.scales == ScaleLayout::Any;
    return can && plain && c.a_sharers() * c.b_sharers() == 1 && c.tile_m * c.tile_n < 128 * 128;
}

/// Warps that load scales, unless producers are round-robin.
inline constexpr uint32_t kScaleWarps = kProducerWarps - 1;

/// K-blocks in one vector of row-major scales: sixteen bytes of a row.
inline constexpr uint32_t kScaleVectorBlocks = 4;

/// K-blocks in a vector that a scale warp holds; for tiles of 136 columns it has no registers for four.
FG_HD constexpr uint32_t scale_vector_blocks(const GemmConfig& c) {
    return c.row_b_scales() && c.tile_n > 128 ? 2 : kScaleVectorBlocks;
}

/// Scale warps that own vectors of scales round-robin. A parity tells a round of the ring from the next one only, so a
/// warp may not skip as many stages as the ring has.
FG_HD constexpr uint32_t vector_scale_warps(const GemmConfig& c) {
    const uint32_t most = 1 + (c.stages - 1) / scale_vector_blocks(c);
    return min(
        most,
        scale_vector_blocks(c) < kScaleVectorBlocks ? kScaleWarps : 2);  // three are no faster with vectors of four
}

/// Lanes that arrive for a warp: one, after __syncwarp. compute-sanitizer's racecheck takes what
/// the others did before for a race; for it, kernels are built in which each lane arrives (2 to 6% slower).
#ifdef FINEGEMM_EVERY_LANE_ARRIVES
inline constexpr uint32_t kLanesArrive = kWarpSize;
#else
inline constexpr uint32_t kLanesArrive = 1;
#endif

/// Arrivals that make a stage full: the TMA warp's, which expects the bytes (transaction count), and one of each lane
/// of a scale warp, when its scales have landed.
FG_HD constexpr uint32_t full_arrivals(const GemmConfig&) { return 1 + kWarpSize; }

/// Arrivals that make a stage empty: one of every math warp that reads it, in one k-slice of this CTA and with
/// multicast in all CTAs of the cluster, since a load of this one overwrites the stage in all of them.
FG_HD constexpr uint32_t empty_arrivals(const GemmConfig& c) {
    return 4 * c.row_warpgroups() * c.a_sharers() * c.b_sharers() * kLanesArrive;
}

/// Arrivals that complete the sums of the earlier k-slice: one of each of its warps.
FG_HD constexpr uint32_t slice_sums_arrivals(const GemmConfig& c) { return 4 * c.row_warpgroups() * kLanesArrive; }

/// CTAs whose producers wait for this CTA's math warps.
FG_HD constexpr uint32_t producers_served(const GemmConfig& c) { return c.a_sharers() * c.b_sharers(); }

}  // namespace finegemm
