// Where the scales of a tile are in memory, and how a scale warp arrives at a stage. Layer device.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/gemm/params.h>
#include <finegemm/gemm/scale_copies.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/pipeline/shared.cuh>
#include <finegemm/device/schedule/grouped_m.cuh>

namespace finegemm::device {

/// Loader of scales: a lane's part of the scales of a tile, k-block after k-block.
template <typename L, GemmConfig C>
concept ScaleLoader = requires(L loader, const Params<C>& p, const Shared<C>& smem, uint32_t stage) {
    loader.load();             // what can be loaded before the stage is empty
    loader.fill(smem, stage);  // the rest, and the arrival at the stage's barrier
    loader.advance(p);         // to the next k-block
};

/// Addresses of the scales of a tile's A, of those of its first row, and of those of its B.
__device__ inline const float* scale_matrix_of_a(const GemmParams& p, const Tile&) { return p.sfa.data; }
__device__ inline const float* scale_matrix_of_a(const GroupedParams& p, const Tile& tile) {
    return p.sfa.data + matrix_of(p, tile) * p.sfa_stride;
}
__device__ inline const float* scales_of_a(const GemmParams& p, const Tile& tile) {
    return p.sfa.data + tile.row * p.sfa.mn_stride;
}
__device__ inline const float* scales_of_a(const GroupedParams& p, const Tile& tile) {
    return p.sfa.data + tile.row * p.sfa.mn_stride + matrix_of(p, tile) * p.sfa_stride;
}
__device__ inline const float* scales_of_b(const GemmParams& p, const Tile&) { return p.sfb.data; }
__device__ inline const float* scales_of_b(const GroupedParams& p, const Tile& tile) {
    return p.sfb.data + tile.group * p.sfb_stride;
}

/// Are scales of neighbouring rows neighbours in memory, equally far from a multiple of 16 bytes in every k-block?
__device__ inline bool neighbours(const ScaleView& s) { return s.mn_stride == 1 && s.k_stride % kScalePiece == 0; }

/// Floats from a stage's first one to the scale of the tile's first row; published to the math warps.
template <GemmConfig C>
    requires(!finds_rows(C.finish))
__device__ inline uint32_t shift_of(const Params<C>& p, const Tile& tile) {
    return kPlan<C>.shifted_scales && neighbours(p.sfa) ? scale_shift(scales_of_a(p, tile)) : 0;
}

/// Rows that are found by numbers are copied without a shift.
template <GemmConfig C>
    requires(finds_rows(C.finish))
__device__ inline uint32_t shift_of(const Params<C>& p, const Tile& tile) {
    const bool shifts = neighbours(p.sfa) && !numbers_of_a(static_cast<const KernelParams<C>&>(p));
    return shifts ? scale_shift(scales_of_a(p, tile)) : 0;
}

/// Arrives for all lanes of a warp, where no copies do.
template <GemmConfig C>
__device__ inline void arrive_for_copies(const Shared<C>& smem, uint32_t stage) {
    if (threadIdx.x % kWarpSize < kLanesArrive) ptx::mbarrier_arrive(smem.full(stage), kWarpSize / kLanesArrive);
}

/// Arrives for the last stage of a grouped kernel, which marks the end and has no scales.
template <typename Scheduler, GemmConfig C>
__device__ void end_scales(const Shared<C>& smem, RingCursor<C.stages> at) {
    if (Scheduler::published()) {
        wait(smem.empty(at.stage), at.parity);
        arrive_for_copies(smem, at.stage);
    }
}

}  // namespace finegemm::device
