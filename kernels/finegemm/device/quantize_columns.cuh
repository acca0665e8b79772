// Quantisation of columns, which become rows, and of the rows in the same pass: a CTA takes a tile of 128x128 elements
// at a time, which stay in registers. Layer device.
#pragma once

#include <finegemm/quantize/columns.h>
#include <finegemm/device/quantize.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

template <QuantizeConfig C>
struct SharedColumns {
    // First the largest of each column and warp, then the tile of codes (QuantizeConfig::place).
    alignas(16) uint32_t words[kScaleBlock * kScaleBlock / 4];
    alignas(16) float inverses[kScaleBlock];
    RowRange rows;
    uint32_t blocks[C.warps()];  // of each warp's groups
};

/// The rows of x that become block `block` of q's columns. Each thread has a group at a time.
template <QuantizeConfig C>
__device__ RowRange find_rows(const QuantizeColumnsParams& p, uint32_t block, SharedColumns<C>& shared) {
    const ColumnGroups& groups = p.groups;
    if (!groups.offsets) return rows_of_block({0, p.rows.rows}, block);
    const uint32_t warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
    const bool writes = blockIdx.x == 0;
    if (threadIdx.x == 0) shared.rows = {};
    uint32_t before = 0;  // blocks
    for (uint32_t first = 0; first < groups.groups; first += C.threads()) {
        const uint32_t g = first + threadIdx.x;
        const RowRange rows = g < groups.groups ? groups.group(g, p.rows.rows) : RowRange{};
        const uint32_t blocks = ceil_div(rows.size(), kScaleBlock);
        uint32_t end = sum_up_to(blocks);
        if (first > 0) __syncthreads();  // everybody has read the last sums
        if (lane == kWarpSize - 1) shared.blocks[warp] = end;
        __syncthreads();  // the sums are there, and no rows yet
        end += before;
        for (uint32_t w = 0; w < C.warps(); ++w) {
            if (w < warp) end += shared.blocks[w];
            before += shared.blocks[w];
        }
        const uint32_t begin = end - blocks;
        if (begin <= block && block < end) shared.rows = rows_of_block(rows, block - begin);
        if (writes && g < groups.groups)
            ptx::store_global(groups.begins + g, min(begin, ceil_div(p.cols, kScaleBlock)) * kScaleBlock);
    }
    if (writes && threadIdx.x == 0)
        ptx::store_global(groups.begins + groups.groups, min(before, ceil_div(p.cols, kScaleBlock)) * kScaleBlock);
    __syncthreads();  // the group's thread has written the rows
    return shared.rows;
}

/// Magnitudes of a word of the input: of a float, or of two numbers of 16 bits, which are compared at once.
template <QuantizeInput Input>
struct Magnitudes {
    static constexpr bool kPairs = Input != QuantizeInput::F32;
    // What is added makes those of what is not finite negative, so that they lose every comparison.
    static constexpr uint32_t kRaise = Input == QuantizeInput::BF16 ? 0x80 : 0x400;

    __device__ static uint32_t of(uint32_t word) {
        return kPairs ? (word & 0x7fff7fffu) + kRaise * 0x10001u : finite_magnitude(float_of_bits(word));
    }
    __device__ static uint32_t larger(uint32_t a, uint32_t b) { return kPairs ? ptx::max_s16x2(a, b) : max(a, b); }
    /// finite_magnitude of element `i` of the word.
    __device__ static uint32_t bits(uint32_t word, uint32_t i) {
        if (!kPairs) return word;
        const uint16_t half = static_cast<uint16_t>((word >> 16 * i) - kRaise);
        // Where nothing of a block is finite, its largest is not finite either, and has no say.
        return finite_magnitude(Input == QuantizeInput::F16 ? ptx::float_of_half(half) : float_of_bf16(half));
    }
};

/// What a thread has of a tile.
template <QuantizeConfig C>
struct ColumnValues {
    using M = Magnitudes<C.input>;
    static constexpr uint32_t kWords = 4, kPerWord = M::kPairs ? 2 : 1;  // words of a row
    static constexpr uint32_t kRowWords = C.kTileRows / kPerWord;        // of the largest of each row

    Values<C> rows[C.kTileRows];

    __device__ void load(const QuantizeParams& p, uint64_t row, uint32_t col, uint32_t existing) {
        const uint8_t* const from = static_cast<const uint8_t*>(p.x) + (row * p.x_row_stride + col) * Values<C>::kBytes;
#pragma unroll
        for (uint32_t u = 0; u < C.kTileRows; ++u)
            if (u < existing) rows[u].load(from + u * p.x_row_stride * Values<C>::kBytes);
            else rows[u].clear();
    }
    /// The largest of each column, and of each row.
    __device__ void find_largest(uint32_t (&of_columns)[kWords], uint32_t (&of_rows)[C.kTileRows]) const {
#pragma unroll
        for (uint32_t u = 0; u < C.kTileRows; ++u) {
            uint32_t most[kWords];
#pragma unroll
            for (uint32_t w = 0; w < kWords; ++w) {
                most[w] = M::of(rows[u].words.w[w]);
                of_columns[w] = u == 0 ? most[w] : M::larger(of_columns[w], most[w]);
            }
            of_rows[u] = M::larger(M::larger(most[0], most[1]), M::larger(most[2], most[3]));
        }
    }
    /// Quantises the rows, whose largest elements are `largest`; `left`: rows from the first one on. Of the lanes of a
    /// row each makes the scale of another one.
    __device__ void quantize_rows(const QuantizeParams& p, uint64_t row, uint32_t col, uint32_t left,
                                  const uint32_t (&largest)[C.kTileRows]) const {
        uint32_t most[kRowWords];
#pragma unroll
        for (uint32_t i = 0; i < kRowWords; ++i) {
            const uint32_t a = largest[i * kPerWord], b = largest[i * kPerWord + kPerWord - 1];
            most[i] = M::kPairs ? M::larger(ptx::low_halves(a, b), ptx::high_halves(a, b)) : a;
#pragma unroll
            for (uint32_t mask = 1; mask < C.lanes(); mask *= 2)
                most[i] = M::larger(most[i], ptx::shuffle_xor(most[i], mask));
        }
        const uint32_t lane = threadIdx.x % kWarpSize, mine = lane % C.kTileRows;
#pragma unroll
        for (uint32_t half = kRowWords / 2; half > 0; half /= 2)  // an index would put them into local memory
#pragma unroll
            for (uint32_t i = 0; i < half; ++i)
                if ((mine / kPerWord & half) != 0) most[i] = most[i + half];
        const float scale = block_scale(M::bits(most[0], mine % kPerWord), p.power_of_two, C.codes);
        if (lane % C.lanes() < min(left, C.kTileRows) && col / kScaleBlock * kScaleBlock < p.cols)
            ptx::store_global(p.scales + (row + mine) * p.scale_row_stride + col / kScaleBlock * p.scale_col_stride,
                              scale);
        const uint32_t inverse = float_bits(inverse_scale(scale)), first = lane / C.lanes() * C.lanes();
        uint8_t* const to = p.q + row * p.q_row_stride + col;
        const uint32_t existing = col < p.cols ? left : 0;
#pragma unroll
        for (uint32_t u = 0; u < C.kTileRows; ++u)
            rows[u].store_if(u < existing, to + u * p.q_row_stride,
                             rows[u].codes(float_of_bits(ptx::value_of(inverse, first + u))));
    }
    /// Four codes of column `i`.
    __device__ uint32_t codes(uint32_t i, uint32_t first, float inverse) const {
        return pack_codes<C.codes>(rows[first].at(i) * inverse, rows[first + 1].at(i) * inverse,
                                   rows[first + 2].at(i) * inverse, rows[first + 3].at(i) * inverse);
    }
};

/// A tile without rows: its codes are zeros.
template <QuantizeConfig C>
__device__ void clear_tile(const QuantizeColumnsParams& p, RowCol first) {
    const TransposedCodes to = p.columns();
    constexpr uint32_t kBytes = 16, kAcross = kScaleBlock / kBytes;
    for (uint32_t i = threadIdx.x; i < kScaleBlock * kAcross; i += C.threads()) {
        const uint32_t row = first.col + i / kAcross, col = first.row + i % kAcross * kBytes;
        ptx::store_global_x4_if(row < to.rows && col < to.cols, to.q + static_cast<uint64_t>(row) * to.row_stride + col,
                                ptx::Words4{});
    }
    const uint32_t row = first.col + threadIdx.x;
    if (threadIdx.x < kScaleBlock && row < to.rows && first.row < to.cols)
        ptx::store_global(p.scales + row * p.scale_row_stride + first.row / kScaleBlock * p.scale_col_stride,
                          block_scale(0, p.rows.power_of_two, C.codes));
}

/// Quantises the tile whose first element is `first`, as row and column of x by blocks, with the rows `rows` of x.
template <QuantizeConfig C>
__device__ void quantize_tile(const QuantizeColumnsParams& p, RowCol first, RowRange rows, SharedColumns<C>& shared) {
    if (rows.size() == 0) {
        clear_tile<C>(p, first);
        return;
    }
    using M = Magnitudes<C.input>;
    constexpr uint32_t kWords = ColumnValues<C>::kWords, kPerWord = ColumnValues<C>::kPerWord;
    constexpr uint32_t kWarpRows = kScaleBlock / C.warps();
    const ptx::SmemAddr words = ptx::smem_address(shared.words);
    const RowCol mine = C.origin(threadIdx.x);
    const uint32_t col = first.col + mine.col;
    const uint32_t left = rows.size() - min(mine.row, rows.size());
    // Else all codes of the warp are zeros: groups of few rows leave most of a tile empty.
    const bool has_rows = mine.row / kWarpRows * kWarpRows < rows.size();
    ColumnValues<C> values;
    uint32_t most[kWords] = {}, of_rows[C.kTileRows];
    if (has_rows) {
        values.load(p.rows, rows.begin + mine.row, col, col < p.rows.cols ? left : 0);
        values.find_largest(most, of_rows);
#pragma unroll
        for (uint32_t w = 0; w < kWords; ++w)
#pragma unroll
            for (uint32_t mask = C.lanes(); mask < kWarpSize; mask *= 2)
                most[w] = M::larger(most[w], ptx::shuffle_xor(most[w], mask));
    }
    __syncthreads();  // everybody has read the last tile's codes
    if (threadIdx.x % kWarpSize < C.lanes())
        ptx::store_shared_words_x4(words + (threadIdx.x / kWarpSize * C.lanes() + threadIdx.x % C.lanes()) * 16,
                                   {{most[0], most[1], most[2], most[3]}});
    if (has_rows && p.rows.q) values.quantize_rows(p.rows, rows.begin + mine.row, col, left, of_rows);
    __syncthreads();  // the largest of all warps are there
    if (threadIdx.x < kScaleBlock) {
        const uint32_t* const column = shared.words + threadIdx.x / kPerWord;
        uint32_t largest = column[0];
#pragma unroll
        for (uint32_t w = 1; w < C.warps(); ++w) largest = M::larger(largest, column[w * kWords * C.lanes()]);
        const float scale = block_scale(M::bits(largest, threadIdx.x % kPerWord), p.rows.power_of_two, C.codes);
        shared.inverses[threadIdx.x] = inverse_scale(scale);
        const uint32_t column_of_x = first.col + threadIdx.x;
        if (column_of_x < p.rows.cols && first.row < p.cols)
            ptx::store_global(
                p.scales + column_of_x * p.scale_row_stride + first.row / kScaleBlock * p.scale_col_stride, scale);
    }
    __syncthreads();  // the factors are there, and the largest have been read: codes may take their place
    const ptx::SmemAddr place = words + C.place(mine.col, mine.row / C.kTileRows);
    if (has_rows) {
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); ++i) {
            const float inverse = shared.inverses[mine.col + i];
            ptx::store_shared_words_x2(place + i * kScaleBlock, values.codes(i, 0, inverse),
                                       values.codes(i, 4, inverse));
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); ++i) ptx::store_shared_words_x2(place + i * kScaleBlock, 0, 0);
    }
    __syncthreads();  // all codes are there
    store_columns<C>(p.columns(), first, words);
}

/// Neighbouring CTAs have tiles below each other, whose codes are side by side in rows of q; but where rows are written
/// too, tiles next to each other, as their codes are.
template <QuantizeColumnsConfig C>
__device__ void quantize_columns(const QuantizeColumnsParams& p) {
    __shared__ SharedColumns<C.tile()> shared;
    const uint32_t in_turn = p.rows.q ? p.parts_across() : p.tiles_down();
    const uint32_t slow = blockIdx.x / in_turn, fast = blockIdx.x % in_turn;
    const uint32_t down = p.rows.q ? slow : fast, right = (p.rows.q ? fast : slow) * p.cta_tiles;
    const uint32_t end = min(right + p.cta_tiles, p.tiles_across());
    const RowRange rows = find_rows<C.tile()>(p, down, shared);
#pragma unroll 1
    for (uint32_t tile = right; tile < end; ++tile)
        quantize_tile<C.tile()>(p, {down * kScaleBlock, tile * kScaleBlock}, rows, shared);
}

}  // namespace finegemm::device
