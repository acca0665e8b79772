// From the accumulators of swapped products, whose rows are columns of D, to D in bf16 or f16. Layer device.
// stmatrix transposes on the way to shared memory, from where each warp of a warpgroup stores whole pieces of rows.
#pragma once

#include <finegemm/device/epilogue/store_bf16.cuh>
#include <finegemm/device/mma/k_slices.cuh>
#include <finegemm/device/pipeline/barriers.cuh>

namespace finegemm::device {

template <GemmConfig C>
struct SwappedEpilogue {
    static_assert(C.output != Output::F32 && C.finish == Finish::None);
    const Params<C>& p;
    const Shared<C>& smem;
    uint32_t rank, k_blocks;  // of a CTA in its cluster; of a tile of a dense product

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}
    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) const {
        if constexpr (C.k_slices() > 1)  // as in Bf16Epilogue
            if (!add_k_slices<C>(acc, smem, k_blocks)) return;
        const uint32_t warpgroup = ptx::broadcast(threadIdx.x / 128),
                       col = tile.col + swapped_part_of(C, warpgroup) * kSwappedCols;
        uint16_t* const d = static_cast<uint16_t*>(p.d_data) + matrix_offset(p, tile) + tile.row * p.d_row_stride + col;
#pragma unroll
        for (uint32_t first = 0; first < C.tile_m; first += kStripRows)
            if (first < tile.rows)
                store_strip(&acc.sum[0][first / 2], warpgroup, d + first * p.d_row_stride, tile.rows - first, col);
    }

private:
    static constexpr uint32_t kStripRows = swapped_strip_rows(C);
    /// Stores a strip of the first `rows` rows from `d` on.
    __device__ void store_strip(const float* sum, uint32_t warpgroup, uint16_t* d, uint32_t rows, uint32_t col) const {
        const uint32_t thread = threadIdx.x % 128;
        const SmemAddr strip = smem.d(swapped_part_of(C, warpgroup) * 4);
        warpgroup_barrier(warpgroup);  // all warps have read what the strip had before
#pragma unroll
        for (uint32_t pair = 0; pair < kStripRows / 16; ++pair) {
            const float* r = sum + pair * 8;
            ptx::stmatrix_x4_transposed(strip + panel_offset(kSwappedCols, stmatrix_transposed_piece(thread, pair)),
                                        pack<C.output>(r[0], r[1]), pack<C.output>(r[2], r[3]),
                                        pack<C.output>(r[4], r[5]), pack<C.output>(r[6], r[7]));
        }
        warpgroup_barrier(warpgroup);
#pragma unroll
        for (uint32_t i = 0; i < swapped_strip_bytes(C) / 16 / 128; ++i) {
            const RowCol at = swapped_piece(thread, i);
            ptx::Words4 piece = ptx::load_shared_words_x4(strip + panel_offset(kSwappedCols, at));
            if (C.decodes) piece = in_order(piece);
            // N is a multiple of 8: a piece exists or it does not.
            ptx::store_global_x4_if(at.row < rows && col + at.col < p.n, d + at.row * p.d_row_stride + at.col,
                                    piece);
        }
    }
    /// Eight columns of a row, from the order that they have in a WGMMA (swapped_col).
    __device__ static ptx::Words4 in_order(const ptx::Words4& x) {
        return {{ptx::low_halves(x.w[0], x.w[1]), ptx::low_halves(x.w[2], x.w[3]), ptx::high_halves(x.w[0], x.w[1]),
                 ptx::high_halves(x.w[2], x.w[3])}};
    }
};

}  // namespace finegemm::device
