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

/// A scale warp's view of the scales of one tile: four rows of A per lane and 128 rows, and up to two blocks of B.
/// The math warps on the same schedulers wait for every instruction here: addresses are computed once for each tile.
template <GemmConfig C>
struct ScaleReader {
    static constexpr uint32_t kGroupRows = 4 * kWarpSize, kGroups = ceil_div(C.tile_m, kGroupRows);

    const ScaleView& sfa;
    const ScaleView& sfb;
    uint32_t lane, rows = 0;        // rows: of D from this lane's first one on
    bool vectors;                   // four rows of A lie side by side, aligned
    const float* a_from = nullptr;  // this lane's first row of A, and its block of B
    const float* b_from = nullptr;
    ptx::Float4 a[kGroups];
    float b = 0;

    __device__ explicit ScaleReader(const GemmParams& p)
        : sfa(p.sfa),
          sfb(p.sfb),
          lane(threadIdx.x % kWarpSize),
          vectors(sfa.mn_stride == 1 && ((reinterpret_cast<uint64_t>(sfa.data) / 4 | sfa.k_stride) & 3) == 0) {}

    __device__ void aim(const GemmParams& p, TileCoord tile, uint32_t kb) {
        const uint32_t row = tile.m * C.tile_m + lane * 4;
        rows = row < p.m ? p.m - row : 0;
        a_from = sfa.data + row * sfa.mn_stride + kb * sfa.k_stride;
        // The block past the last one repeats it: its products are never stored.
        const uint32_t block = min(tile.n * C.tile_n / kScaleBlock + lane % kMaxBScales, ceil_div(p.n, kScaleBlock) - 1);
        b_from = sfb.data + block * sfb.mn_stride + kb * sfb.k_stride;
    }
    __device__ void step(uint32_t blocks) {
        a_from += blocks * sfa.k_stride;
        b_from += blocks * sfb.k_stride;
    }

    /// Rows past the end keep what they had: their products are never stored.
    __device__ void load() {
#pragma unroll
        for (uint32_t g = 0; g < kGroups; ++g) {
            if (vectors && rows >= g * kGroupRows + 4) {
                a[g] = ptx::load_global_x4(a_from + g * kGroupRows);
            } else {
                const float* from = a_from + g * kGroupRows * sfa.mn_stride;
                float* const parts[4] = {&a[g].x, &a[g].y, &a[g].z, &a[g].w};
#pragma unroll
                for (uint32_t r = 0; r < 4; ++r, from += sfa.mn_stride)
                    if (rows > g * kGroupRows + r) *parts[r] = ptx::load_global(from);
            }
        }
        if (lane < kMaxBScales) b = ptx::load_global(b_from);
    }

    __device__ void store(SmemAddr to_a, SmemAddr to_b) const {
#pragma unroll
        for (uint32_t g = 0; g < kGroups; ++g)
            if ((g + 1) * kGroupRows <= C.tile_m || g * kGroupRows + lane * 4 < C.tile_m)
                ptx::store_shared_x4(to_a + (g * kGroupRows + lane * 4) * 4, a[g]);
        if (lane < kMaxBScales) ptx::store_shared(to_b + lane * 4, b);
    }
};

/// One of kScaleWarps warps, each of which serves every kScaleWarps-th stage. Plain loads take scales of any layout, so
/// neither layout needs a kernel before this one; they are issued before the stage is free, so their latency is hidden.
template <GemmConfig C>
__device__ void load_scales(const GemmParams& p, const Shared<C>& smem, Walk walk, uint32_t scale_warp) {
    static_assert(kScaleWarps <= C.stages, "a warp that skips stages must not lap the ring");
    auto at = RingCursor<C.stages>::producer();
    at += scale_warp;
    auto block = BlockWalk::of<C>(walk, scale_warp);
    if (block.done) return;
    ScaleReader<C> scales(p);
    scales.aim(p, block.tile, block.kb);
#pragma unroll 1
    while (true) {
        scales.load();
        wait(smem.empty(at.stage), at.parity);
        scales.store(smem.sfa(at.stage), smem.sfb(at.stage));
        __syncwarp();   // the arrival below speaks for the whole warp
        if (threadIdx.x % kWarpSize == 0) ptx::mbarrier_arrive(smem.full(at.stage));
        at += kScaleWarps;
        const bool other_tile = block.advance<C>(kScaleWarps);
        if (block.done) return;
        if (other_tile) scales.aim(p, block.tile, block.kb);
        else scales.step(kScaleWarps);
    }
}

}  // namespace finegemm::device
