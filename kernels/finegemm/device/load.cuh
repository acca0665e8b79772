// The producer warps: one brings tiles of A and B by TMA, the others bring their scales.
// Layer device. They fill the same stage and arrive at the same barrier.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/schedule.h>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/shared.cuh>

namespace finegemm::device {

/// One thread. Loads of a shared operand bring this CTA's part of the rows and deliver it to the whole cluster.
template <GemmConfig C>
__device__ void load_tiles(const GemmParams& p, const Shared<C>& smem, Walk walk) {
    constexpr uint16_t kAllRanks = (1u << C.cluster) - 1;
    constexpr uint32_t kBRows = b_box_rows(C);
    const uint32_t a_part = C.a_sharers() > 1 ? walk.rank * p.a_box_rows : 0;
    const uint32_t b_part = C.b_sharers() > 1 ? walk.rank * kBRows : 0;
    const uint32_t stage_bytes = (p.a_box_rows * C.a_sharers() + C.tile_n) * GemmConfig::kTileK;

    auto at = RingCursor<C.stages>::producer();
    for (TileCoord tile; walk.take<C>(tile);) {
        const uint32_t a_row = tile.m * C.tile_m + a_part;
        const uint32_t b_row = tile.n * C.tile_n + b_part;
#pragma unroll 1
        for (uint32_t kb = walk.k.begin; kb < walk.k.end; ++kb, ++at) {
            const SmemAddr full = smem.full(at.stage);
            const SmemAddr a = smem.a(at.stage) + a_part * GemmConfig::kTileK;
            const SmemAddr b = smem.b(at.stage) + b_part * GemmConfig::kTileK;
            wait(smem.empty(at.stage), at.parity);
            ptx::mbarrier_arrive_expect_tx(full, stage_bytes);
            if constexpr (C.a_sharers() > 1)
                ptx::tma_load_multicast(a, &p.a, full, kb * GemmConfig::kTileK, a_row, kAllRanks, p.a_policy);
            else
                ptx::tma_load(a, &p.a, full, kb * GemmConfig::kTileK, a_row, p.a_policy);
            if constexpr (C.b_sharers() > 1)
                ptx::tma_load_multicast(b, &p.b, full, kb * GemmConfig::kTileK, b_row, kAllRanks, p.b_policy);
            else
                ptx::tma_load(b, &p.b, full, kb * GemmConfig::kTileK, b_row, p.b_policy);
        }
    }
}

/// The scales of one k-block, spread over the lanes of a warp.
template <GemmConfig C>
struct ScaleBlock {
    float a[C.tile_m / kWarpSize];
    float b;

    /// Rows and blocks past the end repeat the last one: their products are never stored.
    __device__ void load(const GemmParams& p, TileCoord tile, uint32_t kb) {
        const uint32_t lane = threadIdx.x % kWarpSize;
        const float* column = p.sfa.data + kb * p.sfa.k_stride;
#pragma unroll
        for (uint32_t i = 0; i < C.tile_m / kWarpSize; ++i)
            a[i] = ptx::load_global(column + min(tile.m * C.tile_m + i * kWarpSize + lane, p.m - 1) * p.sfa.mn_stride);
        const uint32_t block = min(tile.n * C.tile_n / kScaleBlock + lane % kMaxBScales, ceil_div(p.n, kScaleBlock) - 1);
        b = ptx::load_global(p.sfb.data + block * p.sfb.mn_stride + kb * p.sfb.k_stride);
    }

    __device__ void store(SmemAddr sfa, SmemAddr sfb) const {
        const uint32_t lane = threadIdx.x % kWarpSize;
#pragma unroll
        for (uint32_t i = 0; i < C.tile_m / kWarpSize; ++i) ptx::store_shared(sfa + (i * kWarpSize + lane) * 4, a[i]);
        if (lane < kMaxBScales) ptx::store_shared(sfb + lane * 4, b);
    }
};

/// One of kScaleWarps warps, each of which serves every kScaleWarps-th stage. Plain loads take scales of any layout, so
/// neither layout needs a kernel before this one; they are issued before the stage is free, so their latency is hidden.
template <GemmConfig C>
__device__ void load_scales(const GemmParams& p, const Shared<C>& smem, Walk walk, uint32_t scale_warp) {
    auto at = RingCursor<C.stages>::producer();
    at += scale_warp;
    auto block = BlockWalk::of<C>(walk, scale_warp);
    ScaleBlock<C> scales;
    if (!block.done) scales.load(p, block.tile, block.kb);
#pragma unroll 1
    while (!block.done) {
        wait(smem.empty(at.stage), at.parity);
        scales.store(smem.sfa(at.stage), smem.sfb(at.stage));
        __syncwarp();   // the arrival below speaks for the whole warp
        if (threadIdx.x % kWarpSize == 0) ptx::mbarrier_arrive(smem.full(at.stage));
        at += kScaleWarps;
        block.advance<C>(kScaleWarps);
        if (!block.done) scales.load(p, block.tile, block.kb);
    }
}

}  // namespace finegemm::device
