// From accumulators to D in f32, overwritten or added to, through strips; L2 adds. Layer device.
#pragma once

#include <finegemm/gemm/k_slices.h>
#include <finegemm/gemm/params.h>
#include <finegemm/device/epilogue/stack.cuh>
#include <finegemm/device/mma/mainloop.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Copies a sum to another register. A store of two takes an even register and the one after it. If these were those of
/// the sums, each sum would lie in the same bank as the element of a block product that is added to it, and a promotion
/// would wait for its operands: 128x128 tiles would take 6 to 15% longer. Three warpgroups hide that, and lose 1%.
template <GemmConfig C>
__device__ inline float to_store(float sum) {
    return C.math_warpgroups < 3 ? ptx::plus_zero(sum) : sum;
}

/// Stores this warp's 16 rows of one 64-row WGMMA. Whole lines of 128 bytes are written, so that DRAM sees no
/// part of one. Where D is accumulated to, L2 adds: nobody waits for the old D, and as each element is added to once,
/// the result is the same every time.
template <GemmConfig C>
__device__ void store_rows_f32(const Params<C>& p, const float (&sum)[C.tile_n / 2], SmemAddr strip, const Tile& tile,
                               uint32_t offset) {
    static_assert(n_segments(C) == 1);
    constexpr uint32_t kStripCols = kPlan<C>.strip_cols;
    const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(offset, 16, tile.rows);
    float* d = static_cast<float*>(p.d_data) + (tile.row + offset) * p.d_row_stride + tile.col;
    d += matrix_offset(p, tile);
#pragma unroll
    for (uint32_t col = 0; col < C.tile_n; col += kStripCols) {
        const uint32_t cols = min(kStripCols, C.tile_n - col);  // known when this is compiled, as the loop is unrolled
        __syncwarp();                                           // all lanes have read what the strip had before
#pragma unroll
        for (uint32_t r = 0; r < cols / 2; r += 2)
            ptx::store_shared_x2(strip + strip_offset<C>(wgmma_accumulator(lane, r)), to_store<C>(sum[col / 2 + r]),
                                 to_store<C>(sum[col / 2 + r + 1]));
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < strip_pieces(C, cols); ++i) {
            const RowCol at = strip_piece(C, cols, lane, i);
            // N is a multiple of 8: a piece exists or it does not.
            const bool exists = at.row < rows && tile.col + col + at.col < p.n;
            float* const to = d + at.row * p.d_row_stride + col + at.col;
            const ptx::Float4 x = ptx::load_shared_x4(strip + strip_offset<C>(at));
            ptx::store_global_x4_if(exists && !p.accumulate, to, x);
            ptx::add_global_x4_if(exists && p.accumulate, to, x);
        }
    }
}

template <GemmConfig C>
__device__ void store_tile_f32(const Params<C>& p, Accumulator<C>& acc, const Shared<C>& smem, const Tile& tile) {
    const uint32_t warp = threadIdx.x / kWarpSize;
    const uint32_t offset = first_row_of(C, warp / 4) + warp % 4 * kWarpRows;
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
        store_rows_f32<C>(p, acc.sum[i], smem.d(strip_of(C, warp)), tile, offset + i * rows_apart(C));
}

}  // namespace finegemm::device
