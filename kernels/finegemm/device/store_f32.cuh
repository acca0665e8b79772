// From accumulators to D in f32, overwritten or added to. Layer device. Where there is room for a whole tile the copy
// engine brings what D has and takes the sums away; else math warps write through slabs, as store.cuh, and L2 adds.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/smem_plan.h>
#include <finegemm/device/mainloop.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// A sum, in another register. A store of two takes an even register and the one after it. If these were those of the
/// sums, each sum would lie in the same bank as the element of a block product that is added to it, and a promotion
/// would wait for its operands: 128x128 tiles would take 6 to 15% longer. Three warpgroups hide that, and lose 1%.
template <GemmConfig C>
__device__ inline float to_store(float sum) {
    return C.math_warpgroups < 3 ? ptx::plus_zero(sum) : sum;
}

/// The 16 rows of one 64-row WGMMA that are this warp's. Whole lines of 128 bytes are written, so that DRAM sees no
/// part of one. What is added to D is added in L2: nobody waits for what D had, and as each element is added to once,
/// the result is the same every time.
template <GemmConfig C>
__device__ void store_rows_f32(const Params<C>& p, const float (&sum)[C.tile_n / 2], SmemAddr slab, const Tile& tile,
                               uint32_t offset) {
    static_assert(runs(C) == 1 && C.teams() == 1);
    constexpr uint32_t kMost = slab_cols(C);
    const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(offset, 16, tile.rows);
    float* d = static_cast<float*>(p.d_data) + (tile.row + offset) * p.d_row_stride + tile.col;
    if constexpr (C.k_groups()) d += tile.group * p.d_stride;
#pragma unroll
    for (uint32_t col = 0; col < C.tile_n; col += kMost) {
        const uint32_t cols = min(kMost, C.tile_n - col);  // known when this is compiled, as the loop is unrolled
        __syncwarp();                                      // all lanes have read what the slab had before
#pragma unroll
        for (uint32_t r = 0; r < cols / 2; r += 2)
            ptx::store_shared_x2(slab + slab_offset(C, wgmma_accumulator(lane, r)), to_store<C>(sum[col / 2 + r]),
                                 to_store<C>(sum[col / 2 + r + 1]));
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < slab_pieces(C, cols); ++i) {
            const RowCol at = slab_piece(C, cols, lane, i);
            // N is a multiple of 8: a piece exists or it does not.
            const bool exists = at.row < rows && tile.col + col + at.col < p.n;
            float* const to = d + at.row * p.d_row_stride + col + at.col;
            const ptx::Float4 x = ptx::load_shared_x4(slab + slab_offset(C, at));
            ptx::store_global_x4_if(exists && !p.accumulate, to, x);
            ptx::add_global_x4_if(exists && p.accumulate, to, x);
        }
    }
}

template <GemmConfig C>
__device__ void store_tile_f32(const Params<C>& p, const Accumulator<C>& acc, const Shared<C>& smem, const Tile& tile) {
    const uint32_t warp = threadIdx.x / kWarpSize;
    const uint32_t offset = first_row_of(C, warp / 4) + warp % 4 * kWarpRows;
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
        store_rows_f32<C>(p, acc.sum[i], smem.d(warp), tile, offset + i * rows_apart(C));
}

/// What a math warp has of D, tile after tile, in boxes of its own: it waits for no other one. L2 adds 1.23 TB/s to D,
/// where memory could read and write 2.1 (docs/epilogues.md, "F32").
template <GemmConfig C>
struct BroughtTiles {
    static_assert(brings_d(C) && C.cluster == 1);
    static constexpr uint32_t kBoxes = boxes_of_d(C);

    const Params<C>& p;
    SmemAddr boxes, full;
    uint32_t first_row;   // of this warp in a tile
    uint32_t parity = 0;  // of `full`

    __device__ BroughtTiles(const Params<C>& params, const Shared<C>& smem) : p(params) {
        const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
        boxes = smem.d(warp);
        full = smem.d_full(warp);
        first_row = warp * kWarpRows;
    }

    /// What D has in box `i`, the boxes of a tile in their order. They are free once what they had has been read, which
    /// is not asked when a tile has been stored, but a k-block later: so nobody waits.
    __device__ void bring(const Tile& tile, uint32_t i) const {
        if (i == 0) {
            ptx::bulk_wait_read();
            __syncwarp();
        }
        if (!p.accumulate) return;
        if (i == 0) ptx::mbarrier_expect_tx_elected(full, kBoxes * kF32BoxBytes);
        const SmemAddr to = boxes + i * kF32BoxBytes;
        const uint32_t col = tile.col + i * kF32BoxCols, row = tile.row + first_row;
        if constexpr (C.k_groups()) ptx::tma_load_elected(to, &p.d[0], full, col, row, p.first_group + tile.group);
        else ptx::tma_load_elected(to, &p.d[0], full, col, row);
    }

    __device__ void operator()(const Accumulator<C>& acc, const Tile& tile) {
        if (p.accumulate) {
            wait(full, parity);
            parity ^= 1;
            write<true>(acc.sum[0]);
        } else {
            write<false>(acc.sum[0]);
        }
        ptx::fence_proxy_async_shared();
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < kBoxes; ++i) {
            const SmemAddr from = boxes + i * kF32BoxBytes;
            const uint32_t col = tile.col + i * kF32BoxCols, row = tile.row + first_row;
            if constexpr (C.k_groups()) ptx::tma_store(&p.d[0], from, col, row, p.first_group + tile.group);
            else ptx::tma_store(&p.d[0], from, col, row);
        }
        ptx::bulk_commit_group();
    }

private:
    /// The sums, or with `Add` what D has plus the sums.
    template <bool Add>
    __device__ void write(const float (&sum)[C.tile_n / 2]) const {
        constexpr uint32_t kOddRow = 4;  // a lane of one
        const uint32_t lane = threadIdx.x % kWarpSize;
        const bool odd_row = f32_box_register(lane, 0) != 0;
#pragma unroll
        for (uint32_t turn = 0; turn < C.tile_n / 2; ++turn) {
            const float x = odd_row ? sum[f32_box_register(kOddRow, turn)] : sum[turn];
            const SmemAddr to = boxes + f32_box_offset(wgmma_accumulator(lane, f32_box_register(lane, turn)));
            ptx::store_shared(to, Add ? ptx::add_ftz(ptx::load_shared(to), x) : x);
        }
    }
};

}  // namespace finegemm::device
