// The roles of a GEMM kernel's warps: constants that all kernels share. Layer gemm.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// Warps of the producer warpgroup.
inline constexpr uint32_t kProducerWarps = 4;

/// Warps that load scales, unless producers are round-robin.
inline constexpr uint32_t kScaleWarps = kProducerWarps - 1;

/// K-blocks in one vector of row-major scales: sixteen bytes of a row.
inline constexpr uint32_t kScaleVectorBlocks = 4;

/// Lanes that arrive for a warp: one, after __syncwarp. compute-sanitizer's racecheck takes what
/// the others did before for a race; for it, kernels are built in which each lane arrives (2 to 6% slower).
#ifdef FINEGEMM_EVERY_LANE_ARRIVES
inline constexpr uint32_t kLanesArrive = kWarpSize;
#else
inline constexpr uint32_t kLanesArrive = 1;
#endif

}  // namespace finegemm
