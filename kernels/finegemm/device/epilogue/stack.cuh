// Where a tile of D is, of all kinds of parameters: D may be a stack of matrices. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/schedule/grouped_m.cuh>

namespace finegemm::device {

/// Elements from the first one of D to the matrix that a tile lies in.
__device__ inline int64_t matrix_offset(const SegmentedParams&, const Tile&) { return 0; }
__device__ inline int64_t matrix_offset(const GroupedParams& p, const Tile& tile) {
    return matrix_of(p, tile) * p.d_stride;
}
__device__ inline int64_t matrix_offset(const KGroupedParams& p, const Tile& tile) { return tile.group * p.d_stride; }
__device__ inline int64_t matrix_offset(const SummedParams& p, const Tile& tile) { return tile.group * p.d_stride; }

/// Stores a panel of a tile to D by TMA.
__device__ inline void store_panel(const SegmentedParams& p, uint32_t width, ptx::SmemAddr from, const Tile&,
                                   uint32_t col, uint32_t row) {
    ptx::tma_store(&p.d[width], from, col, row);
}
__device__ inline void store_panel(const GroupedParams& p, uint32_t width, ptx::SmemAddr from, const Tile& tile,
                                   uint32_t col, uint32_t row) {
    ptx::tma_store(&p.d[width], from, col, row, matrix_of(p, tile));
}
__device__ inline void store_panel(const KGroupedParams& p, uint32_t width, ptx::SmemAddr from, const Tile& tile,
                                   uint32_t col, uint32_t row) {
    ptx::tma_store(&p.d[width], from, col, row, tile.group);
}

/// Loads a panel of the old D by TMA, by one lane of a converged warp.
__device__ inline void load_panel(const SegmentedParams& p, ptx::SmemAddr to, ptx::SmemAddr full, const Tile&,
                                  uint32_t col, uint32_t row) {
    ptx::tma_load_elected(to, &p.d[0], full, col, row);
}
__device__ inline void load_panel(const KGroupedParams& p, ptx::SmemAddr to, ptx::SmemAddr full, const Tile& tile,
                                  uint32_t col, uint32_t row) {
    ptx::tma_load_elected(to, &p.d[0], full, col, row, tile.group);
}

}  // namespace finegemm::device
