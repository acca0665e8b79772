// The producer warps: one brings tiles of A and B by TMA, the others bring their scales.
// Layer device. They fill the same stage and arrive at the same barrier.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/schedule.h>
#include <finegemm/device/barriers.cuh>
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
            else ptx::tma_load(a, &p.a, full, kb * GemmConfig::kTileK, a_row, p.a_policy);
            if constexpr (C.b_sharers() > 1)
                ptx::tma_load_multicast(b, &p.b, full, kb * GemmConfig::kTileK, b_row, kAllRanks, p.b_policy);
            else ptx::tma_load(b, &p.b, full, kb * GemmConfig::kTileK, b_row, p.b_policy);
        }
    }
}

/// How a warp reads scales of A: 16 bytes at a time if their layout allows it.
enum class ScaleAccess {
    Rows,    // four neighbouring rows of one k-block (MN-major)
    Blocks,  // four k-blocks of one row (row-major)
    Singly,
};

/// The scales of a run of k-blocks, on their way through the registers of a warp. The math warps on the same schedulers
/// wait for every instruction here, so there are few: a load for four scales of A, one for all scales of B.
template <GemmConfig C>
struct ScaleRun {
    static constexpr uint32_t kRun = RunWalk::kRun;
    static constexpr uint32_t kGroups = ceil_div(C.tile_m, 4 * kWarpSize);  // of 128 rows, four for each lane

    const ScaleView &sfa, &sfb;
    uint32_t lane;
    ScaleAccess access;
    ptx::Float4 a[kRun][kGroups];
    float b = 0;  // lane 2 * j + i: block i of B in k-block j

    __device__ ScaleRun(const GemmParams& p, KRange k)
        : sfa(p.sfa), sfb(p.sfb), lane(threadIdx.x % kWarpSize), access(ScaleAccess::Singly) {
        const bool aligned = reinterpret_cast<uint64_t>(sfa.data) % 16 == 0;
        if (aligned && sfa.mn_stride == 1 && sfa.k_stride % 4 == 0) access = ScaleAccess::Rows;
        else if (aligned && sfa.k_stride == 1 && sfa.mn_stride % 4 == 0 && k.begin % 4 == 0)
            access = ScaleAccess::Blocks;
    }

    /// Row of the tile that part `part` of `a[...][group]` belongs to.
    __device__ uint32_t row(uint32_t group, uint32_t part) const {
        return group * 4 * kWarpSize + (access == ScaleAccess::Rows ? lane * 4 + part : part * kWarpSize + lane);
    }

    /// Rows past the end keep what they had: their products are never stored.
    __device__ void load(const GemmParams& p, TileCoord tile, KRange blocks) {
        const uint32_t first = tile.m * C.tile_m, rows = existing_rows(first, C.tile_m, p.m);
        const float* from = sfa.data + first * sfa.mn_stride + blocks.begin * sfa.k_stride;
#pragma unroll
        for (uint32_t g = 0; g < kGroups; ++g) {
            if (access == ScaleAccess::Rows && row(g, 3) < rows) {
#pragma unroll
                for (uint32_t j = 0; j < kRun; ++j)
                    if (j < blocks.size()) a[j][g] = ptx::load_global_x4(from + row(g, 0) + j * sfa.k_stride);
            } else if (access == ScaleAccess::Blocks && blocks.size() == kRun) {
                load_blocks(g, from, rows);
            } else {
                load_singly(g, from, rows, blocks.size());
            }
        }
        const uint32_t block =
            min(tile.n * C.tile_n / kScaleBlock + lane % kMaxBScales, ceil_div(p.n, kScaleBlock) - 1);
        if (lane / kMaxBScales < blocks.size())
            b = ptx::load_global(sfb.data + block * sfb.mn_stride + (blocks.begin + lane / kMaxBScales) * sfb.k_stride);
    }

    __device__ void store(uint32_t j, SmemAddr to_a, SmemAddr to_b) const {
#pragma unroll
        for (uint32_t g = 0; g < kGroups; ++g) {
            if (access == ScaleAccess::Rows) {
                if (row(g, 3) < C.tile_m) ptx::store_shared_x4(to_a + row(g, 0) * 4, a[j][g]);
            } else {
#pragma unroll
                for (uint32_t part = 0; part < 4; ++part)
                    if (row(g, part) < C.tile_m) ptx::store_shared(to_a + row(g, part) * 4, a[j][g].part[part]);
            }
        }
        if (lane / kMaxBScales == j) ptx::store_shared(to_b + lane % kMaxBScales * 4, b);
    }

private:
    __device__ void load_blocks(uint32_t g, const float* from, uint32_t rows) {
#pragma unroll
        for (uint32_t part = 0; part < 4; ++part) {
            if (row(g, part) >= rows) continue;
            const ptx::Float4 v = ptx::load_global_x4(from + row(g, part) * sfa.mn_stride);
#pragma unroll
            for (uint32_t j = 0; j < kRun; ++j) a[j][g].part[part] = v.part[j];
        }
    }
    __device__ void load_singly(uint32_t g, const float* from, uint32_t rows, uint32_t blocks) {
#pragma unroll
        for (uint32_t part = 0; part < 4; ++part) {
            if (row(g, part) >= rows) continue;
            const float* at = from + row(g, part) * sfa.mn_stride;
#pragma unroll
            for (uint32_t j = 0; j < kRun; ++j, at += sfa.k_stride)
                if (j < blocks) a[j][g].part[part] = ptx::load_global(at);
        }
    }
};

/// One of kScaleWarps warps, each of which serves every kScaleWarps-th run. Plain loads take scales of any layout, so
/// neither layout needs a kernel before this one; they are issued long before the stage is free, so their latency is
/// hidden.
template <GemmConfig C>
__device__ void load_scales(const GemmParams& p, const Shared<C>& smem, Walk walk, uint32_t scale_warp) {
    auto run = RunWalk::of<C>(walk, scale_warp);
    ScaleRun<C> scales(p, walk.k);
#pragma unroll 1
    for (; !run.done; run.advance<C>(kScaleWarps)) {
        const KRange blocks = run.blocks();
        scales.load(p, run.tile, blocks);
        // A parity tells a round of the ring from the next one only, and this warp has skipped some. The warp before
        // has just filled the stage before, so from here on the round is the right one.
        if (run.position() > 0) await_scale_turn(scale_warp);
        auto at = RingCursor<C.stages>::producer().advanced(run.position());
#pragma unroll
        for (uint32_t j = 0; j < RunWalk::kRun; ++j, ++at) {
            if (j >= blocks.size()) break;
            wait(smem.empty(at.stage), at.parity);
            scales.store(j, smem.sfa(at.stage), smem.sfb(at.stage));
            __syncwarp();  // the arrival below speaks for the whole warp
            if (threadIdx.x % kWarpSize == 0) ptx::mbarrier_arrive(smem.full(at.stage));
        }
        pass_scale_turn(scale_warp);
    }
}

}  // namespace finegemm::device
