// ScaleVector: row-major scales, by vector loads. Layer device.
#pragma once

#include <finegemm/device/load/scale_views.cuh>
#include <finegemm/device/load/scales_async.cuh>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// Scales of four k-blocks of a tile, in a warp's registers: one vector load for each row.
template <GemmConfig C>
struct ScaleVector {
    static constexpr uint32_t kBlocks = kScaleVectorBlocks;
    static constexpr uint32_t kRows = C.tile_m / kWarpSize;  // of each lane
    ptx::Float4 a[kRows];
    float b;  // lane 4 * i + j: scale of segment i in k-block j

    __device__ void load(const Params<C>& p, const Tile& tile, uint32_t kb) {
        static_assert(!C.row_b_scales());
        const uint32_t lane = threadIdx.x % kWarpSize;
        const float* from = scales_of_a(p, tile) + lane * p.sfa.mn_stride + kb;
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i, from += kWarpSize * p.sfa.mn_stride)
            if (i * kWarpSize + lane < tile.rows) a[i] = ptx::load_global_x4(from);
        const uint32_t col = first_col_of<C>(p, tile, lane / kScaleVectorBlocks);
        if (col < p.n)
            b = ptx::load_global(scales_of_b(p, tile) + col / kScaleBlock * p.sfb.mn_stride +
                                 (kb + lane % kScaleVectorBlocks) * p.sfb.k_stride);
    }
    __device__ void fill(uint32_t j, const Shared<C>& smem, uint32_t stage) const {
        const uint32_t lane = threadIdx.x % kWarpSize;
        const SmemAddr to_a = smem.sfa(stage), to_b = smem.sfb(stage);
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) ptx::store_shared(to_a + (i * kWarpSize + lane) * 4, a[i].part[j]);
        if (lane / kScaleVectorBlocks < b_scales(C) && lane % kScaleVectorBlocks == j)
            ptx::store_shared(to_b + lane / kScaleVectorBlocks * 4, b);
        __syncwarp();  // one lane's arrivals speak for the whole warp
        arrive_for_copies(smem, stage);
    }
};

}  // namespace finegemm::device
