// From accumulators to D: through a slab in shared memory, so that what a warp writes to D are whole pieces of rows.
// Layer device. Each warp has a slab of its own and waits for nobody.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/teams.h>
#include <finegemm/device/group_walk.cuh>
#include <finegemm/device/mainloop.cuh>

namespace finegemm::device {

/// Rows that no group has become zero, where indices say so: of 64 rows the two that a thread has elements of.
template <GemmConfig C>
__device__ void clear_padding(const GroupedParams& p, float (&sum)[C.tile_n / 2], const Tile& tile, uint32_t offset) {
    const uint32_t row = offset + threadIdx.x % kWarpSize / 4;
    const auto is_padding = [&](uint32_t r) {
        return r < tile.rows && !p.groups.is_group(p.groups.indices[tile.row + r]);
    };
    const bool upper = is_padding(row), lower = is_padding(row + 8);
#pragma unroll
    for (uint32_t r = 0; r < C.tile_n / 2; ++r)
        if (r % 4 < 2 ? upper : lower) sum[r] = 0;
}

/// The 16 rows of one 64-row WGMMA that are this warp's, from row `offset` of the tile on: the columns of a run and of
/// those after it.
template <GemmConfig C, uint32_t Run = 0>
__device__ void store_rows(const Params<C>& p, const float (&sum)[C.tile_n / 2], SmemAddr slab, const Tile& tile,
                           uint32_t offset) {
    constexpr uint32_t kFirst = cols_before_run(C, Run), kRun = run_cols(C, Run), kCols = min(slab_cols(C), kRun);
    const uint32_t first_col = run_col(C, p.raster, tile.col, Run);
    const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(offset, 16, tile.rows);
    const uint32_t first_row = tile.row + offset;
    uint16_t* d = static_cast<uint16_t*>(p.d_data) + first_row * p.d_row_stride + first_col;
    if constexpr (C.row_groups()) d += matrix_of(p, tile) * p.d_stride;
#pragma unroll
    for (uint32_t col = 0; col < kRun; col += kCols) {
        __syncwarp();  // all lanes have read what the slab had before
#pragma unroll
        for (uint32_t pair = 0; pair < kCols / 16; ++pair) {
            const float* r = &sum[(kFirst + col) / 2 + pair * 8];
            ptx::stmatrix_x4(slab + slab_offset(C, stmatrix_piece(lane, pair)), ptx::pack_bf16(r[0], r[1]),
                             ptx::pack_bf16(r[2], r[3]), ptx::pack_bf16(r[4], r[5]), ptx::pack_bf16(r[6], r[7]));
        }
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < slab_pieces(C, kCols); ++i) {
            const RowCol at = slab_piece(C, kCols, lane, i);
            // N is a multiple of 8: a piece exists or it does not.
            ptx::store_global_x4_if(at.row < rows && first_col + col + at.col < p.n,
                                    d + at.row * p.d_row_stride + col + at.col,
                                    ptx::load_shared_words_x4(slab + slab_offset(C, at)));
        }
    }
    if constexpr (Run + 1 < runs(C)) store_rows<C, Run + 1>(p, sum, slab, tile, offset);
}

template <GemmConfig C>
__device__ void store_tile(const Params<C>& p, Accumulator<C>& acc, const Shared<C>& smem, const Tile& tile) {
    const uint32_t warp = threadIdx.x / kWarpSize;
    const uint32_t offset = row_part_of(C, warp / 4) * C.rows_per_warpgroup() + warp % 4 * 16;
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
        if constexpr (C.row_groups())
            if (p.groups.indices) clear_padding<C>(p, acc.sum[i], tile, offset + i * 64);
        store_rows<C>(p, acc.sum[i], smem.d(warp), tile, offset + i * 64);
    }
}

}  // namespace finegemm::device
