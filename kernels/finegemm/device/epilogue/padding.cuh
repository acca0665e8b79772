// Rows of padding, which D gets zeros for. Layer device.
#pragma once

#include <finegemm/gemm/k_slices.h>
#include <finegemm/gemm/params.h>
#include <finegemm/device/mma/mainloop.cuh>

namespace finegemm::device {

/// Zeroes the rows that belong to no group by their index: of 64 rows the two that a thread has elements of.
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

template <GemmConfig C>
__device__ void clear_padding(const GroupedParams& p, Accumulator<C>& acc, const Tile& tile, uint32_t first_row) {
    if (p.groups.indices)
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
            clear_padding<C>(p, acc.sum[i], tile, first_row + i * rows_apart(C));
}
template <GemmConfig C>
__device__ void clear_padding(const GemmParams&, Accumulator<C>&, const Tile&, uint32_t) {}

}  // namespace finegemm::device
