// From accumulators to D in f32, overwritten or added to: through slabs, as store.cuh. Layer device.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/smem_plan.h>
#include <finegemm/device/mainloop.cuh>

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
    constexpr uint32_t kCols = slab_cols(C);
    const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(offset, 16, tile.rows);
    float* d = static_cast<float*>(p.d_data) + (tile.row + offset) * p.d_row_stride + tile.col;
    if constexpr (C.k_groups()) d += tile.group * p.d_stride;
#pragma unroll
    for (uint32_t col = 0; col < C.tile_n; col += kCols) {
        __syncwarp();  // all lanes have read what the slab had before
#pragma unroll
        for (uint32_t r = 0; r < kCols / 2; r += 2)
            ptx::store_shared_x2(slab + slab_offset(C, wgmma_accumulator(lane, r)), to_store<C>(sum[col / 2 + r]),
                                 to_store<C>(sum[col / 2 + r + 1]));
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < slab_pieces(C, kCols); ++i) {
            const RowCol at = slab_piece(C, kCols, lane, i);
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
__device__ void store_tile_f32(const Params<C>& p, const Accumulator<C>& acc, const Shared<C>& smem,
                               const Tile& tile) {
    const uint32_t warp = threadIdx.x / kWarpSize;
    const uint32_t offset = warp / 4 * C.rows_per_warpgroup() + warp % 4 * 16;
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
        store_rows_f32<C>(p, acc.sum[i], smem.d(warp), tile, offset + i * 64);
}

}  // namespace finegemm::device
