// The main loop of a math warpgroup: one k-block at a time, tensor cores inside a block, FP32 between blocks.
// Layer device. Two-level accumulation: the tensor core's FP8 accumulator keeps about 14 bits (docs/numerics.md).
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/registers.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/schedule.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/barriers.cuh>
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

/// Starts block[64 x tile_n] = A[64 x 128] * B[tile_n x 128]^T: four wgmma of 32.
template <GemmConfig C>
__device__ inline void start_block(float (&block)[C.tile_n / 2], SmemAddr a, SmemAddr b) {
    ptx::wgmma_fence();
    ptx::wgmma_k128_e4m3(block, wgmma_descriptor(a.bits), wgmma_descriptor(b.bits));
    ptx::wgmma_commit_group();
}

/// Waits until all but the youngest `Pending` groups have finished; `block` may be read after it.
template <uint32_t Pending, uint32_t Registers>
__device__ inline void finish_block(float (&block)[Registers]) {
    ptx::wgmma_wait_group<Pending>();
#pragma unroll
    for (uint32_t r = 0; r < Registers; ++r) ptx::pin(block[r]);
}

/// Scales that a thread needs for one k-block: two rows of A, and the one or two blocks of B that the tile touches.
struct Scales {
    float a_upper, a_lower;  // rows `row` and `row + 8` of the fragment
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
        const bool first = !C.two_b_scales() || r * 2 < first_cols;  // four registers cover eight columns
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
    __syncwarp();  // the whole warp has read its scales
    if constexpr (producers_served(C) > 1) {
        if (lane < producers_served(C)) ptx::mbarrier_arrive_cluster(ptx::map_to_rank(smem.empty(stage), lane));
    } else {
        if (lane == 0) ptx::mbarrier_arrive(smem.empty(stage));
    }
}

/// What a math warpgroup needs while it walks over K.
template <GemmConfig C>
struct MathRole {
    const Shared<C>& smem;
    uint32_t warpgroup, first_row, fragment_row;

    __device__ explicit MathRole(const Shared<C>& shared)
        : smem(shared),
          warpgroup(ptx::broadcast(threadIdx.x / 128)),
          first_row(warpgroup * C.rows_per_warpgroup()),
          fragment_row(first_row + wgmma_accumulator(threadIdx.x % 128, 0).row) {}

    __device__ SmemAddr a(uint32_t stage, uint32_t i) const {
        return smem.a(stage) + (first_row + i * 64) * GemmConfig::kTileK;
    }
    __device__ Scales scales(uint32_t stage, uint32_t i) const {
        const SmemAddr rows = smem.sfa(stage) + (fragment_row + i * 64) * 4;
        return {.a_upper = ptx::load_shared(rows),
                .a_lower = ptx::load_shared(rows + 8 * 4),
                .b_first = ptx::load_shared(smem.sfb(stage)),
                .b_second = C.two_b_scales() ? ptx::load_shared(smem.sfb(stage) + 4) : 0.0f};
    }
};

/// One block at a time: while this warpgroup promotes, the tensor cores work for another one. Nothing makes the two
/// alternate but that the tensor cores finish one warpgroup's block before the other's; explicit turns cost 8% of the
/// time.
template <GemmConfig C>
__device__ void multiply_one_by_one(Accumulator<C>& acc, const MathRole<C>& role, RingCursor<C.stages>& at,
                                    uint32_t first_cols, uint32_t blocks) {
    wait(role.smem.full(at.stage), at.parity);
    Scales scales = role.scales(at.stage, 0), next;
#pragma unroll 1
    for (; blocks > 0; --blocks) {
        const uint32_t stage = at.stage;
        ++at;
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
            const bool last = i + 1 == C.wgmmas_m();
            float block[C.tile_n / 2];
            start_block<C>(block, role.a(stage, i), role.smem.b(stage));
            if (!last) {
                next = role.scales(stage, i + 1);
            } else if (blocks > 1) {
                wait(role.smem.full(at.stage), at.parity);
                next = role.scales(at.stage, 0);
            }
            finish_block<0>(block);
            if (last) release(role.smem, stage);
            // Always so. But ptxas moves no instruction across the branch: it would else mix the promotion with what
            // starts the next block, and the tensor cores would wait (256x128 tiles: 13% of the time).
            if (stage < C.stages) promote<C>(acc.sum[i], block, scales, first_cols);
            scales = next;
        }
    }
}

/// Two blocks in flight: the next one is started before this one is promoted.
template <GemmConfig C>
__device__ void multiply_overlapped(Accumulator<C>& acc, const MathRole<C>& role, RingCursor<C.stages>& at,
                                    uint32_t first_cols, uint32_t blocks) {
    struct Flight {
        float block[C.tile_n / 2];
        Scales scales;
        uint32_t stage;
    };
    const auto start = [&](Flight& f) {
        f.stage = at.stage;
        wait(role.smem.full(at.stage), at.parity);
        f.scales = role.scales(at.stage, 0);
        start_block<C>(f.block, role.a(at.stage, 0), role.smem.b(at.stage));
        ++at;
    };
    const auto promote_finished = [&](Flight& f) {
        release(role.smem, f.stage);
        promote<C>(acc.sum[0], f.block, f.scales, first_cols);
    };
    const auto finish = [&](Flight& f) {
        finish_block<0>(f.block);
        promote_finished(f);
    };
    Flight even, odd;
    start(even);
#pragma unroll 1
    for (;; blocks -= 2) {
        if (blocks == 1) return finish(even);
        start(odd);
        finish_block<1>(even.block);
        promote_finished(even);
        if (blocks == 2) return finish(odd);
        start(even);
        finish_block<1>(odd.block);
        promote_finished(odd);
    }
}

/// Sums a range of K for this warpgroup's rows of the tile.
template <GemmConfig C>
__device__ void multiply_tile(Accumulator<C>& acc, const Shared<C>& smem, RingCursor<C.stages>& at, TileCoord tile,
                              KRange k) {
    const MathRole<C> role(smem);
    const uint32_t first_cols = kScaleBlock - tile.n * C.tile_n % kScaleBlock;
    acc.clear();
    if (k.size() == 0) return;  // a split finer than the k-blocks
    if constexpr (blocks_in_flight(C) == 2) multiply_overlapped<C>(acc, role, at, first_cols, k.size());
    else multiply_one_by_one<C>(acc, role, at, first_cols, k.size());
}

}  // namespace finegemm::device
