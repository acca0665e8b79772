// Packing of rows that lie one behind the other: a tile is copied as it lies, without registers, and packed from shared
// memory. Layer device.
#pragma once

#include <finegemm/device/scale_groups.cuh>

namespace finegemm::device {

/// The scales of a word, which begin at `scales`; `cols`: those that exist.
__device__ inline uint32_t pack_word(const ScaleRounding& rounding, const uint32_t* scales, uint32_t cols) {
    uint32_t exponents[kExponentsPerWord];
#pragma unroll
    for (uint32_t i = 0; i < kExponentsPerWord; ++i) exponents[i] = i < cols ? rounding.rounded(scales[i]) : 0;
    return ptx::highest_bytes(exponents[0], exponents[1], exponents[2], exponents[3]);
}

/// Each thread packs words of one row. Groups are looked for while the tile comes.
template <ScaleLayoutConfig C>
__device__ void pack_rows(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    constexpr uint32_t kBytes = 16;
    const uint32_t rows = min(p.tile.rows, p.rows - origin.row), bytes = rows * p.in_cols * sizeof(uint32_t);
    const uint8_t* const from = p.in + origin.matrix * p.in_strides.matrix + origin.row * p.in_strides.row;
    const ptx::SmemAddr words = ptx::smem_address(shared.words);
#pragma unroll 4
    for (uint32_t i = threadIdx.x * kBytes; i < bytes; i += C.threads() * kBytes)
        ptx::copy_async_x4(words + i, reinterpret_cast<const float*>(from + i), min(bytes - i, kBytes));
    bool all = true;
    if (C.groups == ScaleGroupKind::Rows) {
        const uint32_t group = group_behind(p.groups, origin.row);
        all = has_all_rows(p, origin, group);
        if (!all) find_row_groups<C>(p, origin, group, shared);
    }
    ptx::wait_for_copies();
    __syncthreads();  // the tile is there
    const uint32_t warp = threadIdx.x / kWarpSize;
    const uint32_t below = p.tile.rows / kWarpSize;  // warps below each other
    const uint32_t row = warp % below * kWarpSize + threadIdx.x % kWarpSize;
    if (row >= rows) return;
    const bool exists = all || (grouped_rows<C.groups>(shared, row) & 1u) != 0;
    uint8_t* const to = p.out + origin.matrix * p.out_strides.matrix + (origin.row + row) * p.out_strides.row;
    for (uint32_t w = warp / below; w < p.out_cols; w += C.threads() / kWarpSize / below) {
        const uint32_t col = w * kExponentsPerWord;
        const uint32_t word = pack_word(p.rounding, shared.words + row * p.in_cols + col, p.in_cols - col);
        ptx::store_global(to + w * p.out_strides.col, exists ? word : 0);
    }
}

}  // namespace finegemm::device
