// Groups of scales: what a CTA must know of them for its tile. Layer device.
#pragma once

#include <finegemm/scale_layout/scale_layout.h>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

template <ScaleLayoutConfig C>
struct SharedScales {
    static constexpr uint32_t kWarps = C.threads() / kWarpSize;

    alignas(16) uint32_t words[C.tile_elements()];
    WordSource sources[C.max_words()];
    uint32_t grouped_rows[C.tile_elements() / 32];  // a bit for each row
    uint32_t scales[kWarps], packed[kWarps];        // sums of each warp's groups of K
};

/// Which columns each word of the tile takes, by groups of K. Each thread has neighbouring groups.
template <ScaleLayoutConfig C>
__device__ void find_k_groups(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    constexpr uint32_t kAtOnce = 4;  // groups whose numbers are loaded together
    const uint32_t warp = threadIdx.x / kWarpSize, groups = p.groups.groups;
    const uint32_t each = ceil_div(groups, C.threads());
    const uint32_t first = min(threadIdx.x * each, groups), last = min(first + each, groups);
    if (threadIdx.x < p.tile.words) shared.sources[threadIdx.x] = {};
    uint32_t scales = 0, words = 0;
    for (uint32_t g = first; g < last; g += kAtOnce)
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u) {
            const uint32_t of_group = p.groups.scales(min(g + u, groups - 1)), counted = g + u < last ? of_group : 0;
            scales += counted, words += ceil_div(counted, kExponentsPerWord);
        }
    uint32_t scale = sum_up_to(scales), word = sum_up_to(words);
    if (threadIdx.x % kWarpSize == kWarpSize - 1) {
        shared.scales[warp] = scale;
        shared.packed[warp] = word;
    }
    scale -= scales, word -= words;
    __syncthreads();  // sums are there, and the sources are empty
    for (uint32_t w = 0; w < warp; ++w) scale += shared.scales[w], word += shared.packed[w];
    if (word >= origin.word + p.tile.words || word + words <= origin.word) return;
    for (uint32_t g = first; g < last; ++g) {
        const uint32_t of_group = p.groups.scales(g), end = word + ceil_div(of_group, kExponentsPerWord);
        for (uint32_t w = max(word, origin.word); w < min(end, origin.word + p.tile.words); ++w)
            shared.sources[w - origin.word] = group_word_source(scale, of_group, w - word);
        scale += of_group, word = end;
    }
}

/// Which rows of the tile have a group. `first`: no group before it has some.
template <ScaleLayoutConfig C>
__device__ void find_row_groups(const ScaleLayoutParams& p, const ScaleOrigin& origin, uint32_t first,
                                SharedScales<C>& shared) {
    for (uint32_t i = threadIdx.x; i < p.tile.rows / 32; i += C.threads()) shared.grouped_rows[i] = 0;
    __syncthreads();
    const uint32_t behind = origin.row + p.tile.rows;
    for (bool all = false; first < p.groups.groups && !all; first += C.threads()) {
        const uint32_t g = first + threadIdx.x;
        if (g < p.groups.groups) {
            const uint32_t begin = max(p.groups.begin(g), origin.row) - origin.row;
            const uint32_t end = min(max(p.groups.number(g), origin.row) - origin.row, p.tile.rows);
            for (uint32_t row = begin; row < end; row = (row / 32 + 1) * 32) {
                const uint32_t upper = end - row / 32 * 32;  // bits below it
                const uint32_t below = upper < 32 ? (1u << upper) - 1 : ~0u;
                atomicOr(&shared.grouped_rows[row / 32], below & (~0u << row % 32));
            }
        }
        // Groups follow each other: those behind one that begins behind the tile have none of its rows.
        const uint32_t next = first + C.threads();
        all = next < p.groups.groups && p.groups.begin(next) >= behind;
    }
}

/// The first group that ends behind `row`. The lanes of a warp look together.
__device__ inline uint32_t group_behind(const ScaleGrouper& groups, uint32_t row) {
    uint32_t first = 0;
    for (uint32_t step = groups.groups > 1024 ? 1024 : groups.groups > 32 ? 32 : 1; step > 0; step /= kWarpSize) {
        const uint32_t last = first + (threadIdx.x % kWarpSize + 1) * step - 1;
        const bool ended = last < groups.groups && groups.number(last) <= row;
        first += step * ptx::count_bits(ptx::ballot(ended));
    }
    return first;
}

/// Does group `g`, the first one that ends behind the tile's first row, have all of its rows?
__device__ inline bool has_all_rows(const ScaleLayoutParams& p, const ScaleOrigin& origin, uint32_t g) {
    const uint32_t end = min(origin.row + p.tile.rows, p.rows);
    return g < p.groups.groups && p.groups.begin(g) <= origin.row && p.groups.number(g) >= end;
}

/// A bit for each row from `row` on: does it have a group?
template <ScaleGroupKind Groups, ScaleLayoutConfig C>
__device__ uint32_t grouped_rows(const SharedScales<C>& shared, uint32_t row) {
    return Groups == ScaleGroupKind::Rows ? shared.grouped_rows[row / 32] >> row % 32 : ~0u;
}

}  // namespace finegemm::device
