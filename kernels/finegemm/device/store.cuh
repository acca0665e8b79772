// From accumulators to D, by way of shared memory. Where there is room for a whole tile the copy engine writes it, and
// the math warps go on; else they do, a slab at a time, so that what they write are whole pieces of rows. Layer device.
// Each warp has room of its own and waits for nobody.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/teams.h>
#include <finegemm/device/group_walk.cuh>
#include <finegemm/device/mainloop.cuh>
#include <finegemm/device/ptx/tma.cuh>

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

/// `Cols` columns of this warp's rows, from `first` of a tile on, to where `place` wants a piece of sixteen bytes.
template <uint32_t Cols, uint32_t Registers, typename Place>
__device__ void write_rows(const float (&sum)[Registers], uint32_t first, Place&& place) {
#pragma unroll
    for (uint32_t pair = 0; pair < Cols / 16; ++pair) {
        const float* r = &sum[first / 2 + pair * 8];
        ptx::stmatrix_x4(place(stmatrix_piece(threadIdx.x % kWarpSize, pair)), ptx::pack_bf16(r[0], r[1]),
                         ptx::pack_bf16(r[2], r[3]), ptx::pack_bf16(r[4], r[5]), ptx::pack_bf16(r[6], r[7]));
    }
}

/// A run of eight columns of this warp's rows, the last one, straight to D: they fill half of its sectors anyway.
template <GemmConfig C>
__device__ void store_eight_cols(const Params<C>& p, const float (&sum)[C.tile_n / 2], const Tile& tile,
                                 uint32_t offset) {
    constexpr uint32_t kRun = runs(C) - 1;
    const uint32_t col = run_col(C, p.raster, tile.col, kRun);
    const RowCol at = wgmma_accumulator(threadIdx.x % kWarpSize, 0);
    uint16_t* d = static_cast<uint16_t*>(p.d_data) + (tile.row + offset) * p.d_row_stride + col;
    if constexpr (C.row_groups()) d += matrix_of(p, tile) * p.d_stride;
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = at.row + half * 8;
        ptx::store_global_if(offset + row < tile.rows && col < p.n, d + row * p.d_row_stride + at.col,
                             ptx::pack_bf16(sum[C.tile_n / 2 - 4 + half * 2], sum[C.tile_n / 2 - 3 + half * 2]));
    }
}

/// The 16 rows of one 64-row WGMMA that are this warp's, from row `offset` of the tile on: the columns of a run and of
/// those after it.
template <GemmConfig C, uint32_t Run = 0>
__device__ void store_rows(const Params<C>& p, const float (&sum)[C.tile_n / 2], SmemAddr slab, const Tile& tile,
                           uint32_t offset) {
    if constexpr (run_cols(C, Run) == 8) return store_eight_cols<C>(p, sum, tile, offset);
    constexpr uint32_t kFirst = cols_before_run(C, Run), kRun = run_cols(C, Run), kCols = min(slab_cols(C), kRun);
    static_assert(kCols % 16 == 0 || kRun == 8, "stmatrix writes sixteen columns");
    const uint32_t first_col = run_col(C, p.raster, tile.col, Run);
    const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(offset, kWarpRows, tile.rows);
    const uint32_t first_row = tile.row + offset;
    uint16_t* d = static_cast<uint16_t*>(p.d_data) + first_row * p.d_row_stride + first_col;
    if constexpr (C.row_groups()) d += matrix_of(p, tile) * p.d_stride;
#pragma unroll
    for (uint32_t col = 0; col < kRun; col += kCols) {
        __syncwarp();  // all lanes have read what the slab had before
        write_rows<kCols>(sum, kFirst + col, [&](RowCol at) { return slab + slab_offset(C, at); });
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

/// The same rows to where the copy engine finds them: a box and those after it.
template <GemmConfig C, uint32_t Box = 0>
__device__ void stage_rows(const float (&sum)[C.tile_n / 2], SmemAddr room) {
    constexpr BoxOfD kBox = box_of_d(C, Box);
    constexpr uint32_t kCols = box_width(kBox.width);
    const SmemAddr to = room + kWarpRows * kBox.first * 2;
    write_rows<kCols>(sum, kBox.first, [&](RowCol at) { return to + box_offset(kCols, at); });
    if constexpr (Box + 1 < boxes_of_d(C)) stage_rows<C, Box + 1>(sum, room);
}

/// Where a box begins in D.
template <GemmConfig C>
__device__ uint32_t box_col(const Params<C>& p, const Tile& tile, BoxOfD box) {
    const uint32_t run = run_of(C, box.first);
    return run_col(C, p.raster, tile.col, run) + box.first - cols_before_run(C, run);
}

/// And from there to D. What lies past its end is not written.
template <GemmConfig C, uint32_t Box = 0>
__device__ void store_boxes(const Params<C>& p, SmemAddr room, const Tile& tile, uint32_t offset) {
    constexpr BoxOfD kBox = box_of_d(C, Box);
    const SmemAddr from = room + kWarpRows * kBox.first * 2;
    const uint32_t col = box_col<C>(p, tile, kBox), row = tile.row + offset;
    if constexpr (C.row_groups()) ptx::tma_store(&p.d[kBox.width], from, col, row, matrix_of(p, tile));
    else ptx::tma_store(&p.d[kBox.width], from, col, row);
    if constexpr (Box + 1 < boxes_of_d(C)) store_boxes<C, Box + 1>(p, room, tile, offset);
}

/// The same of a group's last rows, by the warp: a box would write rows of the next group, too.
template <GemmConfig C, uint32_t Box = 0>
__device__ void copy_boxes(const GroupedParams& p, SmemAddr room, const Tile& tile, uint32_t offset, uint32_t rows) {
    constexpr BoxOfD kBox = box_of_d(C, Box);
    constexpr uint32_t kCols = box_width(kBox.width), kPieces = kCols / 8;
    const SmemAddr from = room + kWarpRows * kBox.first * 2;
    const uint32_t col = box_col<C>(p, tile, kBox);
    uint16_t* const d =
        static_cast<uint16_t*>(p.d_data) + matrix_of(p, tile) * p.d_stride + (tile.row + offset) * p.d_row_stride + col;
#pragma unroll 1
    for (uint32_t i = threadIdx.x % kWarpSize; i < rows * kPieces; i += kWarpSize) {
        const RowCol at = {.row = i / kPieces, .col = i % kPieces * 8};
        ptx::store_global_x4_if(col + at.col < p.n, d + at.row * p.d_row_stride + at.col,
                                ptx::load_shared_words_x4(from + box_offset(kCols, at)));
    }
    if constexpr (Box + 1 < boxes_of_d(C)) copy_boxes<C, Box + 1>(p, room, tile, offset, rows);
}

/// Where the rows of this warp begin in a tile.
template <GemmConfig C>
__device__ uint32_t first_row_of(uint32_t warp) {
    return finegemm::first_row_of(C, warp / 4) + warp % 4 * kWarpRows;
}

template <GemmConfig C>
__device__ void stage_tile(const Params<C>& p, const Accumulator<C>& acc, const Shared<C>& smem, const Tile& tile) {
    const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
    ptx::bulk_wait_read();  // what the tile before has left here
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i) stage_rows<C>(acc.sum[i], smem.d(warp) + i * staged_bytes(C));
    ptx::fence_proxy_async_shared();
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
        const SmemAddr room = smem.d(warp) + i * staged_bytes(C);
        const uint32_t offset = first_row_of<C>(warp) + i * rows_apart(C);
        if constexpr (C.row_groups())
            if (const uint32_t rows = existing_rows(offset, kWarpRows, tile.rows); rows < kWarpRows) {
                copy_boxes<C>(p, room, tile, offset, rows);
                continue;
            }
        store_boxes<C>(p, room, tile, offset);
    }
    ptx::bulk_commit_group();
    if constexpr (cols_through_shared(C) < C.tile_n)
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
            store_eight_cols<C>(p, acc.sum[i], tile, first_row_of<C>(warp) + i * rows_apart(C));
}

template <GemmConfig C>
__device__ void store_tile(const Params<C>& p, Accumulator<C>& acc, const Shared<C>& smem, const Tile& tile) {
    const uint32_t warp = threadIdx.x / kWarpSize;
    if constexpr (C.row_groups())
        if (p.groups.indices)
#pragma unroll
            for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
                clear_padding<C>(p, acc.sum[i], tile, first_row_of<C>(warp) + i * rows_apart(C));
    if constexpr (stages_tiles(C)) return stage_tile<C>(p, acc, smem, tile);
    const SmemAddr slab = smem.d(slab_of(C, warp));
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
        store_rows<C>(p, acc.sum[i], slab, tile, first_row_of<C>(warp) + i * rows_apart(C));
}

/// Of a warp, before its CTA ends: shared memory ends with it.
template <GemmConfig C>
__device__ void finish_stores() {
    if constexpr (stages_tiles(C)) ptx::bulk_wait_read();
}

}  // namespace finegemm::device
