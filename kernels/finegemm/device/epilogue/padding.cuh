// Rows of padding, which D gets zeros for. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// Zeroes the rows of D that belong to no group by their index, by the scale warps: no tile has them. All warps of the
/// grid share the rows in turn, so that each has about as many wherever they are.
template <GemmConfig C>
__device__ void zero_padding(const GroupedParams& p, uint32_t scale_warp) {
    if (!p.groups.indices) return;
    constexpr uint32_t kPiece = 16 / bytes_of(C.output);  // elements of 16 bytes; N is a multiple of 8
    const uint32_t lane = threadIdx.x % kWarpSize, warps = gridDim.x * kScaleWarps;
    for (uint32_t first = blockIdx.x * kScaleWarps + scale_warp; first < p.groups.rows; first += kWarpSize * warps) {
        const uint32_t row = first + lane * warps;
        const bool is_padding = row < p.groups.rows && !p.groups.is_group(p.groups.indices[row]);
        for (uint32_t left = ptx::ballot(is_padding); left > 0; left &= left - 1) {
            uint8_t* const d = static_cast<uint8_t*>(p.d_data) +
                               (first + ptx::lowest_bit(left) * warps) * p.d_row_stride * bytes_of(C.output);
            for (uint32_t col = lane * kPiece; col < p.n; col += kWarpSize * kPiece)
                ptx::store_global_x4(d + col * bytes_of(C.output), ptx::Words4{});
        }
    }
}
template <GemmConfig C>
__device__ void zero_padding(const GemmParams&, uint32_t) {}

}  // namespace finegemm::device
