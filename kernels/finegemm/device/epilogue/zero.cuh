// Zeros for D of groups without k-blocks. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// Zeroes a tile of D; the scale warps share its rows. No stage of the ring is spent on such a tile, and the math warps
/// never hear of it. Nobody else writes to it.
template <GemmConfig C>
__device__ void zero_tile(const KGroupedParams& p, const Tile& tile, uint32_t scale_warp) {
    using Element = Either<C.output == Output::F32, float, uint16_t>;
    constexpr uint32_t kPiece = 16 / sizeof(Element);  // elements of 16 bytes; N is a multiple of 8
    const uint32_t cols = existing_rows(tile.col, C.tile_n, p.n);
    Element* const d = static_cast<Element*>(p.d_data) + tile.group * p.d_stride + tile.row * p.d_row_stride + tile.col;
#pragma unroll 1
    for (uint32_t row = scale_warp; row < tile.rows; row += kScaleWarps)
#pragma unroll
        for (uint32_t first = 0; first < C.tile_n; first += kWarpSize * kPiece) {
            const uint32_t col = first + threadIdx.x % kWarpSize * kPiece;
            ptx::store_global_x4_if(col < cols, d + row * p.d_row_stride + col, ptx::Words4{});
        }
}

/// Zeroes a tile without k-blocks, unless D is added to. Only groups of K have such tiles.
template <GemmConfig C>
__device__ void zero_if_empty(const KGroupedParams& p, const GroupedKScheduler& scheduler, const Tile& tile,
                              uint32_t scale_warp) {
    if (scheduler.k.size() == 0 && !p.accumulate) zero_tile<C>(p, tile, scale_warp);
}
template <GemmConfig C, typename Scheduler>
__device__ void zero_if_empty(const GemmParams&, const Scheduler&, const Tile&, uint32_t) {}

}  // namespace finegemm::device
