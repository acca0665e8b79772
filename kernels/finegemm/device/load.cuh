// The two producer warps: one brings tiles of A and B by TMA, the other brings their scales.
// Layer device. Both fill the same stage and arrive at the same barrier.
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
            wait<C>(smem.empty(at.stage), at.parity);
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

/// One warp. Four-byte copies take scales of any layout, so neither layout needs a kernel before this one.
/// Rows and blocks past the end repeat the last one: their products are never stored.
template <GemmConfig C>
__device__ void load_scales(const GemmParams& p, const Shared<C>& smem, Walk walk) {
    const uint32_t lane = threadIdx.x % kWarpSize;
    const uint32_t b_blocks = ceil_div(p.n, kScaleBlock);

    auto at = RingCursor<C.stages>::producer();
    for (TileCoord tile; walk.take<C>(tile);) {
        const float* b = p.sfb.data + min(tile.n * C.tile_n / kScaleBlock + lane, b_blocks - 1) * p.sfb.mn_stride;
#pragma unroll 1
        for (uint32_t kb = walk.k.begin; kb < walk.k.end; ++kb, ++at) {
            const float* a = p.sfa.data + kb * p.sfa.k_stride;
            wait<C>(smem.empty(at.stage), at.parity);
#pragma unroll
            for (uint32_t i = 0; i < C.tile_m / kWarpSize; ++i) {
                const uint32_t row = i * kWarpSize + lane;
                ptx::cp_async_4(smem.sfa(at.stage) + row * 4, a + min(tile.m * C.tile_m + row, p.m - 1) * p.sfa.mn_stride);
            }
            if (lane < (C.two_b_scales() ? 2 : 1)) ptx::cp_async_4(smem.sfb(at.stage) + lane * 4, b + kb * p.sfb.k_stride);
            ptx::cp_async_mbarrier_arrive_noinc(smem.full(at.stage));
        }
    }
}

}  // namespace finegemm::device
