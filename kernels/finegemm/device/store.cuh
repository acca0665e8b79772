// From accumulators to D: through a slab in shared memory, so that what a warp writes to D are whole pieces of rows.
// Layer device. Each warp has a slab of its own and waits for nobody.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/smem_plan.h>
#include <finegemm/device/mainloop.cuh>

namespace finegemm::device {

/// The 16 rows of one 64-row WGMMA that are this warp's.
template <GemmConfig C>
__device__ void store_rows(const GemmParams& p, const float (&sum)[C.tile_n / 2], SmemAddr slab, uint32_t first_row,
                           uint32_t first_col) {
    constexpr uint32_t kCols = slab_cols(C);
    const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(first_row, 16, p.m);
    uint16_t* const d = static_cast<uint16_t*>(p.d_data) + first_row * p.d_row_stride + first_col;
#pragma unroll
    for (uint32_t col = 0; col < C.tile_n; col += kCols) {
        __syncwarp();  // all lanes have read what the slab had before
#pragma unroll
        for (uint32_t pair = 0; pair < kCols / 16; ++pair) {
            const float* r = &sum[col / 2 + pair * 8];
            ptx::stmatrix_x4(slab + slab_offset(C, stmatrix_piece(lane, pair)), ptx::pack_bf16(r[0], r[1]),
                             ptx::pack_bf16(r[2], r[3]), ptx::pack_bf16(r[4], r[5]), ptx::pack_bf16(r[6], r[7]));
        }
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < kCols / 16; ++i) {
            const RowCol at = slab_piece(C, lane, i);
            // N is a multiple of 8: a piece exists or it does not.
            ptx::store_global_x4_if(at.row < rows && first_col + col + at.col < p.n,
                                    d + at.row * p.d_row_stride + col + at.col,
                                    ptx::load_shared_words_x4(slab + slab_offset(C, at)));
        }
    }
}

template <GemmConfig C>
__device__ void store_tile(const GemmParams& p, const Accumulator<C>& acc, const Shared<C>& smem, TileCoord tile) {
    const uint32_t warp = threadIdx.x / kWarpSize;
    const uint32_t row = tile.m * C.tile_m + warp / 4 * C.rows_per_warpgroup() + warp % 4 * 16;
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
        store_rows<C>(p, acc.sum[i], smem.d(warp), row + i * 64, tile.n * C.tile_n);
}

}  // namespace finegemm::device
