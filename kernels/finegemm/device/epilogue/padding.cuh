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
    if (places_d(static_cast<const KernelParams<C>&>(p))) return;  // no row of D is one of padding
    constexpr bool kPairs = pairs_columns(C.finish);
    constexpr uint32_t kBytes = kPairs ? 1 : bytes_of(C.output);
    constexpr uint32_t kPiece = 16 / kBytes;  // elements of 16 bytes; N is a multiple of 8
    const uint32_t lane = threadIdx.x % kWarpSize, warps = gridDim.x * kScaleWarps;
    for (uint32_t first = blockIdx.x * kScaleWarps + scale_warp; first < p.groups.rows; first += kWarpSize * warps) {
        const uint32_t row = first + lane * warps;
        const bool is_padding = row < p.groups.rows && !p.groups.is_group(p.groups.indices[row]);
        for (uint32_t left = ptx::ballot(is_padding); left > 0; left &= left - 1) {
            uint8_t* const d =
                static_cast<uint8_t*>(p.d_data) + (first + ptx::lowest_bit(left) * warps) * p.d_row_stride * kBytes;
            for (uint32_t col = lane * kPiece; col < (kPairs ? p.n / 2 : p.n); col += kWarpSize * kPiece)
                ptx::store_global_x4(d + col * kBytes, ptx::Words4{});
            if constexpr (kPairs) {
                const auto& f = static_cast<const KernelParams<C>&>(p).finish;
                float* const scales = f.scales + (first + ptx::lowest_bit(left) * warps) * f.scale_row_stride;
                for (uint32_t col = lane; col < p.n / 2 / kScaleBlock; col += kWarpSize)
                    ptx::store_global(scales + col * f.scale_col_stride, 1.0f);
            }
        }
    }
}
template <GemmConfig C>
__device__ void zero_padding(const GemmParams&, uint32_t) {}

}  // namespace finegemm::device
