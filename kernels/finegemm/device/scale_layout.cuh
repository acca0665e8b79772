// The kernels for layouts of scales: through shared memory, so that both sides are coalesced. Layer device.
#pragma once

#include <finegemm/scale_layout/scale_layout.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

template <ScaleLayoutConfig C>
struct SharedScales {
    static constexpr uint32_t kWarps = C.threads() / kWarpSize;

    alignas(16) uint32_t words[C.tile_words()];
    WordSource sources[C.max_words()];
    uint32_t grouped_rows[C.tile_words() / 32];  // a bit for each row
    uint32_t scales[kWarps], packed[kWarps];     // sums of each warp's groups of K
};

/// Sums over the lanes up to this one.
__device__ inline uint32_t sum_up_to(uint32_t x) {
#pragma unroll
    for (uint32_t distance = 1; distance < kWarpSize; distance *= 2) {
        const uint32_t below = ptx::value_below(x, distance);
        if (threadIdx.x % kWarpSize >= distance) x += below;
    }
    return x;
}

/// Which columns each word of the tile takes, by groups of K. Each thread has a group at a time.
template <ScaleLayoutConfig C>
__device__ void find_k_groups(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    const uint32_t warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
    uint32_t scales_before = 0, words_before = 0;
    for (uint32_t first = 0; first < p.groups.groups; first += C.threads()) {
        const uint32_t g = first + threadIdx.x;
        const uint32_t scales = g < p.groups.groups ? p.groups.scales(g) : 0;
        const uint32_t words = ceil_div(scales, kExponentsPerWord);
        uint32_t end = sum_up_to(scales), words_end = sum_up_to(words);
        __syncthreads();  // everybody has read the last sums, and the sources are empty
        if (lane == kWarpSize - 1) {
            shared.scales[warp] = end;
            shared.packed[warp] = words_end;
        }
        __syncthreads();
        end += scales_before, words_end += words_before;
        for (uint32_t w = 0; w < SharedScales<C>::kWarps; ++w) {
            if (w < warp) end += shared.scales[w], words_end += shared.packed[w];
            scales_before += shared.scales[w], words_before += shared.packed[w];
        }
        const uint32_t begin = words_end - words;
        for (uint32_t w = max(begin, origin.word); w < min(words_end, origin.word + p.tile.words); ++w)
            shared.sources[w - origin.word] = group_word_source(end - scales, scales, w - begin);
    }
}

/// Which rows of the tile have a group.
template <ScaleLayoutConfig C>
__device__ void find_row_groups(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    for (uint32_t i = threadIdx.x; i < p.tile.rows / 32; i += C.threads()) shared.grouped_rows[i] = 0;
    __syncthreads();
    for (uint32_t g = threadIdx.x; g < p.groups.groups; g += C.threads()) {
        const uint32_t begin = max(p.groups.begin(g), origin.row) - origin.row;
        const uint32_t end = min(max(p.groups.number(g), origin.row) - origin.row, p.tile.rows);
        for (uint32_t row = begin; row < end; row = (row / 32 + 1) * 32) {
            const uint32_t upper = end - row / 32 * 32;  // bits below it
            const uint32_t below = upper < 32 ? (1u << upper) - 1 : ~0u;
            atomicOr(&shared.grouped_rows[row / 32], below & (~0u << row % 32));
        }
    }
}

/// What becomes of a float's bits, or of a word. What does not exist was loaded as 0, and stays that.
template <ScaleLayoutConfig C>
__device__ uint32_t loaded_value(const ScaleRounding& rounding, bool exists, uint32_t bits) {
    if (C.transform == ScaleTransform::Copy || C.transform == ScaleTransform::Unpack) return bits;
    const uint32_t exponent = exists ? rounding.exponent(bits) : 0;
    return C.transform == ScaleTransform::Round ? exponent << 23 : exponent;
}

/// Puts a word into the tile, or a byte of one.
template <ScaleLayoutConfig C>
__device__ void put_if(bool wanted, ptx::SmemAddr words, const ScaleTile& tile, uint32_t row, uint32_t col,
                       uint32_t value) {
    const ptx::SmemAddr at = words + tile.at(C, col / C.loaded(), row) * 4;
    if (C.transform == ScaleTransform::Pack) ptx::store_shared_byte_if(wanted, at + col % C.loaded(), value);
    else ptx::store_shared_word_if(wanted, at, value);
}

/// Loads what a thread has along the outer dimension, several at once. Of the indices below `extent` those below
/// `limit` for which `exists` lie `at` an address; others become 0. `keep_if` takes each value, unless told not to.
template <ScaleLayoutConfig C, typename Exists, typename At, typename KeepIf>
__device__ void load_along(const ScaleLayoutParams& p, uint32_t extent, uint32_t limit, const Exists& exists,
                           const At& at, const KeepIf& keep_if) {
    constexpr uint32_t kUnroll = 8;
    const uint32_t step = C.threads() >> p.load.lanes_log2;
    for (uint32_t first = p.load.outer(threadIdx.x); first < extent; first += kUnroll * step) {
        uint32_t bits[kUnroll];
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u) {
            const uint32_t i = first + u * step;
            // The address of what is not loaded is computed all the same, from shared memory that ends with the tile.
            bits[u] = ptx::load_global_if(i < limit && exists(i), at(min(i, extent - 1)));
        }
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u) {
            const uint32_t i = first + u * step;
            keep_if(i < extent, i, loaded_value<C>(p.rounding, i < limit && exists(i), bits[u]));
        }
    }
}

template <ScaleLayoutConfig C>
__device__ bool is_grouped(const ScaleLayoutParams& p, const SharedScales<C>& shared, uint32_t row) {
    return !C.grouped || !p.groups.of_rows() || ((shared.grouped_rows[row / 32] >> row % 32) & 1u);
}

/// Neighbouring threads have neighbouring rows, and take columns one after the other.
template <ScaleLayoutConfig C>
__device__ void load_down(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    const uint32_t cols = p.tile.words * C.loaded(), first_col = origin.word * C.loaded();
    const uint32_t in_cols = C.grouped ? cols : min(cols, p.in_cols - first_col);
    const uint8_t* matrix = p.in + origin.matrix * p.in_strides.matrix;
    const ptx::SmemAddr words = ptx::smem_address(shared.words);
    for (uint32_t row = p.load.lane(threadIdx.x); row < p.tile.rows; row += p.load.lanes()) {
        const bool row_exists = origin.row + row < p.rows && is_grouped<C>(p, shared, row);
        const uint8_t* from = matrix + ((origin.row + row) >> p.row_shift) * p.in_strides.row;
        const auto in_col = [&](uint32_t col) {
            return C.grouped ? shared.sources[col / C.loaded()].first + col % C.loaded() : first_col + col;
        };
        const auto exists = [&](uint32_t col) {
            return !C.grouped || (col % C.loaded() < shared.sources[col / C.loaded()].count && in_col(col) < p.in_cols);
        };
        load_along<C>(
            p, cols, row_exists ? in_cols : 0, exists,
            [&](uint32_t col) { return from + in_col(col) * p.in_strides.col; },
            [&](bool wanted, uint32_t col, uint32_t value) { put_if<C>(wanted, words, p.tile, row, col, value); });
    }
}

/// Neighbouring threads have neighbouring columns, and take rows one after the other.
template <ScaleLayoutConfig C>
__device__ void load_across(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    const uint32_t cols = p.tile.words * C.loaded(), rows = min(p.tile.rows, p.rows - origin.row);
    const uint8_t* matrix = p.in + origin.matrix * p.in_strides.matrix;
    const ptx::SmemAddr words = ptx::smem_address(shared.words);
    for (uint32_t col = p.load.lane(threadIdx.x); col < cols; col += p.load.lanes()) {
        const auto [first, count] =
            C.grouped ? shared.sources[col / C.loaded()] : word_source(C, origin.word + col / C.loaded());
        const uint32_t in_col = first + col % C.loaded();
        const uint8_t* from = matrix + in_col * p.in_strides.col;
        load_along<C>(
            p, p.tile.rows, col % C.loaded() < count && in_col < p.in_cols ? rows : 0,
            [&](uint32_t row) { return is_grouped<C>(p, shared, row); },
            [&](uint32_t row) { return from + ((origin.row + row) >> p.row_shift) * p.in_strides.row; },
            [&](bool wanted, uint32_t row, uint32_t value) { put_if<C>(wanted, words, p.tile, row, col, value); });
    }
}

/// Puts four columns of a row into the tile. `exist`: they become what their bits say, not 0.
template <ScaleLayoutConfig C>
__device__ void put_four_if(bool wanted, bool exist, const ScaleLayoutParams& p, ptx::SmemAddr words, uint32_t row,
                            uint32_t col, ptx::Words4 v) {
    uint32_t packed = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t value = loaded_value<C>(p.rounding, exist, v.w[i]);
        if (C.transform == ScaleTransform::Pack) packed |= value << 8 * i;
        else ptx::store_shared_word_if(wanted, words + p.tile.at(C, col + i, row) * 4, value);
    }
    if (C.transform == ScaleTransform::Pack)
        ptx::store_shared_word_if(wanted, words + p.tile.at(C, col / C.loaded(), row) * 4, packed);
}

/// As load_across, four columns at once, where rows are aligned to 16 bytes and have no others.
template <ScaleLayoutConfig C>
__device__ void load_across_by_four(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    constexpr uint32_t kUnroll = 4;
    const uint32_t cols = p.tile.words * C.loaded(), first_col = origin.word * C.loaded();
    const uint32_t rows = min(p.tile.rows, p.rows - origin.row), step = C.threads() >> p.load.lanes_log2;
    const uint8_t* matrix = p.in + origin.matrix * p.in_strides.matrix;
    const ptx::SmemAddr words = ptx::smem_address(shared.words);
    for (uint32_t col = 4 * p.load.lane(threadIdx.x); col < cols; col += 4 * p.load.lanes()) {
        const uint8_t* from = matrix + (first_col + col) * p.in_strides.col;
        const uint32_t limit = first_col + col < p.in_cols ? rows : 0;
        for (uint32_t first = p.load.outer(threadIdx.x); first < p.tile.rows; first += kUnroll * step) {
            ptx::Words4 v[kUnroll];
#pragma unroll
            for (uint32_t u = 0; u < kUnroll; ++u) {
                const uint32_t row = first + u * step;
                v[u] =
                    ptx::load_global_x4_if(row < limit, from + ((origin.row + row) >> p.row_shift) * p.in_strides.row);
            }
#pragma unroll
            for (uint32_t u = 0; u < kUnroll; ++u) {
                const uint32_t row = first + u * step;
                put_four_if<C>(row < p.tile.rows, row < limit, p, words, row, col, v[u]);
            }
        }
    }
}

template <ScaleLayoutConfig C>
__device__ uint32_t stored_value(uint32_t word, uint32_t col) {
    return C.transform == ScaleTransform::Unpack ? unpacked_scale(word, col % C.stored()) : word;
}

/// Four rows of a column, or those of them that there are.
template <ScaleLayoutConfig C>
__device__ void store_rows(uint8_t* to, const uint32_t* from, uint32_t col, uint32_t rows) {
    ptx::Words4 v = ptx::load_shared_words_x4(ptx::smem_address(from));
#pragma unroll
    for (uint32_t& w : v.w) w = stored_value<C>(w, col);
    if (rows >= 4) return ptx::store_global_x4(to, v);
#pragma unroll
    for (uint32_t r = 0; r < 3; ++r) ptx::store_global_if(r < rows, to + 4 * r, v.w[r]);
}

template <ScaleLayoutConfig C>
__device__ void store_tile(const ScaleLayoutParams& p, const ScaleOrigin& origin, const SharedScales<C>& shared) {
    const uint32_t rows = min(p.tile.rows, p.rows - origin.row), first_col = origin.word * C.stored();
    const uint32_t cols = min(p.tile.words * C.stored(), p.out_cols - first_col);
    const uint32_t lane = p.store.lane(threadIdx.x), outer = p.store.outer(threadIdx.x);
    const uint32_t lanes = p.store.lanes(), step = C.threads() >> p.store.lanes_log2;
    uint8_t* first =
        p.out + origin.matrix * p.out_strides.matrix + origin.row * p.out_strides.row + first_col * p.out_strides.col;
    const auto from = [&](uint32_t row, uint32_t col) { return shared.words + p.tile.at(C, col / C.stored(), row); };
    if (p.store.unit == 4)
        for (uint32_t row = lane * 4; row < rows; row += lanes * 4)
#pragma unroll 4
            for (uint32_t col = outer; col < cols; col += step)
                store_rows<C>(first + row * 4 + col * p.out_strides.col, from(row, col), col, rows - row);
    else
        for (uint32_t inner = lane; inner < (p.store.down ? rows : cols); inner += lanes)
#pragma unroll 4
            for (uint32_t i = outer; i < (p.store.down ? cols : rows); i += step) {
                const uint32_t row = p.store.down ? inner : i, col = p.store.down ? i : inner;
                ptx::store_global(first + row * p.out_strides.row + col * p.out_strides.col,
                                  stored_value<C>(*from(row, col), col));
            }
}

/// Which columns the words of a tile take, and which of its rows have a group.
template <ScaleLayoutConfig C>
__device__ void find_groups(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    if (threadIdx.x < p.tile.words)
        shared.sources[threadIdx.x] = p.groups.of_k() ? WordSource{} : word_source(C, origin.word + threadIdx.x);
    if (p.groups.of_k()) find_k_groups<C>(p, origin, shared);
    else find_row_groups<C>(p, origin, shared);
}

template <ScaleLayoutConfig C>
__device__ void scale_layout(const ScaleLayoutParams& p) {
    __shared__ SharedScales<C> shared;
    for (uint32_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const ScaleOrigin origin = scale_origin(p, tile);
        if (tile != blockIdx.x) __syncthreads();  // everybody has stored the last tile
        if (C.grouped) {
            find_groups<C>(p, origin, shared);
            __syncthreads();  // everybody has them
        }
        if (p.load.down) load_down<C>(p, origin, shared);
        else if (!C.grouped && p.load.unit == 4) load_across_by_four<C>(p, origin, shared);
        else load_across<C>(p, origin, shared);
        __syncthreads();  // the tile is there
        store_tile<C>(p, origin, shared);
    }
}

}  // namespace finegemm::device
