// From accumulators to D in bf16 or f16, through shared memory. With room for a whole tile, TMA stores it in panels
// while the math warps go on; else they store it themselves, a strip at a time, in whole pieces of rows. Layer device.
// Each warp has shared memory of its own and waits for no other one.
#pragma once

#include <finegemm/gemm/k_slices.h>
#include <finegemm/gemm/params.h>
#include <finegemm/device/epilogue/stack.cuh>
#include <finegemm/device/mma/mainloop.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/ptx/report.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/schedule/grouped_m.cuh>

namespace finegemm::device {

/// Two elements of D, nearest even: `low` in the lower half.
template <Output D>
__device__ uint32_t pack(float low, float high) {
    return D == Output::F16 ? ptx::pack_f16(low, high) : ptx::pack_bf16(low, high);
}

/// To bf16, as what is between two launches is.
template <uint32_t Registers>
__device__ void round_to_bf16(float (&x)[Registers]) {
#pragma unroll
    for (uint32_t r = 0; r < Registers; r += 2) {
        const uint32_t both = ptx::pack_bf16(x[r], x[r + 1]);
        x[r] = float_of_bits(both << 16);
        x[r + 1] = float_of_bits(both & 0xffff0000u);
    }
}

/// Writes `Cols` columns of this warp's rows, from column `first` of the tile on; `address` maps a 16-byte piece.
template <Output D, uint32_t Cols, uint32_t Registers, typename Address>
__device__ void write_rows(const float (&sum)[Registers], uint32_t first, Address&& address) {
#pragma unroll
    for (uint32_t pair = 0; pair < Cols / 16; ++pair) {
        const float* r = &sum[first / 2 + pair * 8];
        ptx::stmatrix_x4(address(stmatrix_piece(threadIdx.x % kWarpSize, pair)), pack<D>(r[0], r[1]),
                         pack<D>(r[2], r[3]), pack<D>(r[4], r[5]), pack<D>(r[6], r[7]));
    }
}

/// Stores a last segment of eight columns straight to D: they fill half of its sectors anyway.
template <GemmConfig C>
__device__ void store_eight_cols(const Params<C>& p, const float (&sum)[C.tile_n / 2], const Tile& tile,
                                 uint32_t offset) {
    constexpr uint32_t kLast = n_segments(C) - 1;
    const uint32_t col = segment_col(C, p.raster, tile.col, kLast);
    const RowCol at = wgmma_accumulator(threadIdx.x % kWarpSize, 0);
    uint16_t* d = static_cast<uint16_t*>(p.d_data) + (tile.row + offset) * p.d_row_stride + col;
    if (kPlan<C>.published_tiles) d += matrix_offset(p, tile);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = at.row + half * 8;
        ptx::store_global_if(offset + row < tile.rows && col < p.n, d + row * p.d_row_stride + at.col,
                             pack<C.output>(sum[C.tile_n / 2 - 4 + half * 2], sum[C.tile_n / 2 - 3 + half * 2]));
    }
}

/// Stores this warp's 16 rows of one 64-row WGMMA, from row `offset` of the tile on, strip by strip: the columns of
/// `Segment` and of the segments after it.
template <GemmConfig C, uint32_t Segment = 0>
__device__ void store_rows(const Params<C>& p, const float (&sum)[C.tile_n / 2], SmemAddr strip, const Tile& tile,
                           uint32_t offset) {
    constexpr uint32_t kStripCols = kPlan<C>.strip_cols;
    constexpr uint32_t kFirst = cols_before_segment(C, Segment), kWidth = segment_cols(C, Segment),
                       kCols = min(kStripCols, kWidth);
    static_assert(kCols % 16 == 0, "stmatrix writes sixteen columns");
    const uint32_t first_col = segment_col(C, p.raster, tile.col, Segment);
    const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(offset, kWarpRows, tile.rows);
    const uint32_t first_row = tile.row + offset;
    uint16_t* d = static_cast<uint16_t*>(p.d_data) + first_row * p.d_row_stride + first_col;
    if (kPlan<C>.published_tiles) d += matrix_offset(p, tile);
#pragma unroll
    for (uint32_t col = 0; col < kWidth; col += kCols) {
        __syncwarp();  // all lanes have read what the strip had before
        write_rows<C.output, kCols>(sum, kFirst + col, [&](RowCol at) { return strip + strip_offset<C>(at); });
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < strip_pieces(C, kCols); ++i) {
            const RowCol at = strip_piece(C, kCols, lane, i);
            // N is a multiple of 8: a piece exists or it does not.
            ptx::store_global_x4_if(at.row < rows && first_col + col + at.col < p.n,
                                    d + at.row * p.d_row_stride + col + at.col,
                                    ptx::load_shared_words_x4(strip + strip_offset<C>(at)));
        }
    }
    if constexpr (Segment + 1 < n_segments(C)) {
        if constexpr (segment_cols(C, Segment + 1) == 8) store_eight_cols<C>(p, sum, tile, offset);
        else store_rows<C, Segment + 1>(p, sum, strip, tile, offset);
    }
}

/// Writes this warp's 16 rows of one 64-row WGMMA to `Panel` and the panels after it, from where TMA stores them.
template <GemmConfig C, uint32_t Panel = 0>
__device__ void write_panels(const float (&sum)[C.tile_n / 2], SmemAddr room) {
    constexpr DPanel kPanel = d_panel(C, Panel);
    constexpr uint32_t kCols = panel_width(kPanel.width);
    const SmemAddr to = room + kWarpRows * kPanel.first * 2;
    write_rows<C.output, kCols>(sum, kPanel.first, [&](RowCol at) { return to + panel_offset(kCols, at); });
    if constexpr (Panel + 1 < d_panels(C)) write_panels<C, Panel + 1>(sum, room);
}

/// Column of D at which a panel begins.
template <GemmConfig C>
__device__ uint32_t panel_col(const Params<C>& p, const Tile& tile, DPanel panel) {
    const uint32_t segment = segment_of(C, panel.first);
    return segment_col(C, p.raster, tile.col, segment) + panel.first - cols_before_segment(C, segment);
}

/// Stores `Panel` and the panels after it to D by TMA, which leaves out what lies past the end of D.
template <GemmConfig C, uint32_t Panel = 0>
__device__ void store_panels(const Params<C>& p, SmemAddr room, const Tile& tile, uint32_t offset) {
    constexpr DPanel kPanel = d_panel(C, Panel);
    const SmemAddr from = room + kWarpRows * kPanel.first * 2;
    const uint32_t col = panel_col<C>(p, tile, kPanel), row = tile.row + offset;
    store_panel(p, kPanel.width, from, tile, col, row);
    if constexpr (Panel + 1 < d_panels(C)) store_panels<C, Panel + 1>(p, room, tile, offset);
}

/// Stores panels of a group's last rows by the warp: TMA's box would write rows of the next group, too.
template <GemmConfig C, uint32_t Panel = 0>
__device__ void copy_panels(const GroupedParams& p, SmemAddr room, const Tile& tile, uint32_t offset, uint32_t rows) {
    constexpr DPanel kPanel = d_panel(C, Panel);
    constexpr uint32_t kCols = panel_width(kPanel.width), kPieces = kCols / 8;
    const SmemAddr from = room + kWarpRows * kPanel.first * 2;
    const uint32_t col = panel_col<C>(p, tile, kPanel);
    uint16_t* const d =
        static_cast<uint16_t*>(p.d_data) + matrix_of(p, tile) * p.d_stride + (tile.row + offset) * p.d_row_stride + col;
#pragma unroll 1
    for (uint32_t i = threadIdx.x % kWarpSize; i < rows * kPieces; i += kWarpSize) {
        const RowCol at = {.row = i / kPieces, .col = i % kPieces * 8};
        ptx::store_global_x4_if(col + at.col < p.n, d + at.row * p.d_row_stride + at.col,
                                ptx::load_shared_words_x4(from + panel_offset(kCols, at)));
    }
    if constexpr (Panel + 1 < d_panels(C)) copy_panels<C, Panel + 1>(p, room, tile, offset, rows);
}

/// Stores the panels of this warp's rows: with groups of rows by the warp where the tile lacks some.
template <GemmConfig C>
__device__ void store_existing_rows(const SegmentedParams& p, SmemAddr room, const Tile& tile, uint32_t offset) {
    store_panels<C>(p, room, tile, offset);
}
template <GemmConfig C>
__device__ void store_existing_rows(const GroupedParams& p, SmemAddr room, const Tile& tile, uint32_t offset) {
    const uint32_t rows = existing_rows(offset, kWarpRows, tile.rows);
    if (rows < kWarpRows) copy_panels<C>(p, room, tile, offset, rows);
    else store_panels<C>(p, room, tile, offset);
}

/// First row of this warp in a tile.
template <GemmConfig C>
__device__ uint32_t first_row_of(uint32_t warp) {
    return finegemm::first_row_of(C, warp / 4) + warp % 4 * kWarpRows;
}

template <GemmConfig C>
__device__ void store_tile_by_tma(const Params<C>& p, const Accumulator<C>& acc, const Shared<C>& smem,
                                  const Tile& tile) {
    const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
    if (C.reports_rows) ptx::bulk_wait();  // until they have landed, too (TileReports)
    else ptx::bulk_wait_read();            // until TMA has read the previous tile's panels
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i) write_panels<C>(acc.sum[i], smem.d(warp) + i * panels_bytes(C));
    ptx::fence_proxy_async_shared();
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
        const SmemAddr room = smem.d(warp) + i * panels_bytes(C);
        const uint32_t offset = first_row_of<C>(warp) + i * rows_apart(C);
        store_existing_rows<C>(p, room, tile, offset);
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
    if constexpr (kPlan<C>.tma_store()) return store_tile_by_tma<C>(p, acc, smem, tile);
    const SmemAddr strip = smem.d(strip_of(C, warp));
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
        store_rows<C>(p, acc.sum[i], strip, tile, first_row_of<C>(warp) + i * rows_apart(C));
}

}  // namespace finegemm::device
