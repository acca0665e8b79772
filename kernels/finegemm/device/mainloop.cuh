// The main loop of a math warpgroup: one k-block at a time, tensor cores inside a block, FP32 between blocks.
// Layer device. Two-level accumulation: the tensor core's FP8 accumulator keeps about 14 bits (docs/numerics.md).
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/schedule.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/ptx/wgmma.cuh>
#include <finegemm/device/shared.cuh>

namespace finegemm::device {

/// The FP32 sums of one warpgroup's part of the tile, in wgmma's fragment layout, 64 rows after 64 rows.
template <GemmConfig C>
struct Accumulator {
    static constexpr uint32_t kRegisters = C.tile_n / 2;
    float sum[C.wgmmas_m()][kRegisters];

    __device__ void clear() {
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
#pragma unroll
            for (uint32_t r = 0; r < kRegisters; ++r) sum[i][r] = 0;
    }
};

/// block[64 x tile_n] = A[64 x 128] * B[tile_n x 128]^T, four wgmma of 32 each; returns when they have finished.
template <GemmConfig C>
__device__ inline void multiply_block(float (&block)[C.tile_n / 2], SmemAddr a, SmemAddr b) {
    const uint64_t a_descriptor = wgmma_descriptor(a.bits);
    const uint64_t b_descriptor = wgmma_descriptor(b.bits);
    ptx::wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < GemmConfig::kTileK; k += 32)
        ptx::wgmma_k32_e4m3(block, advanced(a_descriptor, k), advanced(b_descriptor, k), k != 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (uint32_t r = 0; r < C.tile_n / 2; ++r) ptx::pin(block[r]);
}

/// Scales that a thread needs for one k-block: two rows of A, and the one or two blocks of B that the tile touches.
struct Scales {
    float a_upper, a_lower;   // rows `row` and `row + 8` of the fragment
    float b_first, b_second;
};

/// sum += block * scales. `first_cols`: columns of the tile in its first scale block of B.
template <GemmConfig C>
__device__ inline void promote(float (&sum)[C.tile_n / 2], const float (&block)[C.tile_n / 2], const Scales& s,
                               uint32_t first_cols) {
    const float upper_first = s.a_upper * s.b_first, lower_first = s.a_lower * s.b_first;
    const float upper_second = s.a_upper * s.b_second, lower_second = s.a_lower * s.b_second;
#pragma unroll
    for (uint32_t r = 0; r < C.tile_n / 2; r += 4) {
        const bool first = !C.two_b_scales() || r * 2 < first_cols;   // four registers cover eight columns
        const float upper = first ? upper_first : upper_second;
        const float lower = first ? lower_first : lower_second;
        sum[r] = ptx::fma(block[r], upper, sum[r]);
        sum[r + 1] = ptx::fma(block[r + 1], upper, sum[r + 1]);
        sum[r + 2] = ptx::fma(block[r + 2], lower, sum[r + 2]);
        sum[r + 3] = ptx::fma(block[r + 3], lower, sum[r + 3]);
    }
}

/// Tells all producers that write into this stage, in a cluster those of all CTAs, that this warp has read it.
template <GemmConfig C>
__device__ inline void release(const Shared<C>& smem, uint32_t stage) {
    const uint32_t lane = threadIdx.x % kWarpSize;
    __syncwarp();   // the whole warp has read its scales
    if constexpr (producers_served(C) > 1) {
        if (lane < producers_served(C)) ptx::mbarrier_arrive_cluster(ptx::map_to_rank(smem.empty(stage), lane));
    } else {
        if (lane == 0) ptx::mbarrier_arrive(smem.empty(stage));
    }
}

/// Sums the whole range of K for this warpgroup's rows of the tile.
template <GemmConfig C>
__device__ void multiply_tile(Accumulator<C>& acc, const Shared<C>& smem, RingCursor<C.stages>& at, TileCoord tile, KRange k) {
    const uint32_t warpgroup = threadIdx.x / 128;
    const uint32_t first_row = warpgroup * C.rows_per_warpgroup();
    const uint32_t fragment_row = first_row + wgmma_accumulator(threadIdx.x % 128, 0).row;
    const uint32_t first_cols = kScaleBlock - tile.n * C.tile_n % kScaleBlock;
    acc.clear();
#pragma unroll 1
    for (uint32_t kb = k.begin; kb < k.end; ++kb, ++at) {
        wait<C>(smem.full(at.stage), at.parity);
        Scales s;
        s.b_first = ptx::load_shared(smem.sfb(at.stage));
        s.b_second = C.two_b_scales() ? ptx::load_shared(smem.sfb(at.stage) + 4) : 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
            const SmemAddr row_scales = smem.sfa(at.stage) + (fragment_row + i * 64) * 4;
            s.a_upper = ptx::load_shared(row_scales);
            s.a_lower = ptx::load_shared(row_scales + 8 * 4);
            float block[C.tile_n / 2];
            multiply_block<C>(block, smem.a(at.stage) + (first_row + i * 64) * GemmConfig::kTileK, smem.b(at.stage));
            if (i + 1 == C.wgmmas_m()) release(smem, at.stage);
            promote<C>(acc.sum[i], block, s, first_cols);
        }
    }
}

}  // namespace finegemm::device
