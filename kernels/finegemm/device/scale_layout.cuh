// The kernels for layouts of scales: through shared memory, so that both sides are coalesced. Layer device.
#pragma once

#include <finegemm/device/scale_rows.cuh>

namespace finegemm::device {

/// A piece of the tile as it was loaded: [column][row].
template <ScaleLayoutConfig C, ScaleAccess Access, ScaleGroupKind Groups>
struct LoadedScales : ScalePiece<Access, C.loaded()> {
    using Piece = ScalePiece<Access, C.loaded()>;
    uint32_t bits[Piece::kCols][Piece::kRows];
    uint32_t cols;  // those that exist; others are 0

    /// `from`: the first scale; `next`: bytes to that of the next column.
    __device__ void load(const uint8_t* from, int64_t next) {
        if (Access == ScaleAccess::FourCols) {
            const ptx::Words4 v = ptx::load_global_x4_if(cols != 0, from);
#pragma unroll
            for (uint32_t c = 0; c < 4; ++c) bits[c][0] = v.w[c];
            return;
        }
#pragma unroll
        for (uint32_t c = 0; c < Piece::kCols; ++c)
            if (Access == ScaleAccess::FourRows) {
                const ptx::Words4 v = ptx::load_global_x4_if(c < cols, from + c * next);
#pragma unroll
                for (uint32_t r = 0; r < 4; ++r) bits[c][r] = v.w[r];
            } else {
                bits[c][0] = ptx::load_global_if(c < cols, from + c * next);
            }
    }

    /// The word of row `r` that begins at column `c`.
    __device__ uint32_t word(const ScaleRounding& rounding, uint32_t c, uint32_t r) const {
        if (C.transform == ScaleTransform::Round) return rounding.exponent(bits[c][r]) << rounding.place;
        if (C.transform != ScaleTransform::Pack) return bits[c][r];
        uint32_t exponents[kExponentsPerWord];
#pragma unroll
        for (uint32_t i = 0; i < kExponentsPerWord; ++i) exponents[i] = rounding.rounded(bits[c + i][r]);
        const uint32_t packed = ptx::highest_bytes(exponents[0], exponents[1], exponents[2], exponents[3]);
        return Access == ScaleAccess::FourCols ? packed : packed & (cols < 4 ? (1u << 8 * cols) - 1 : ~0u);
    }

    /// Puts words into the tile; those of rows without a group are 0.
    __device__ void put_if(bool wanted, const ScaleLayoutParams& p, SharedScales<C>& shared, uint32_t word_in_tile,
                           uint32_t row) const {
        const ptx::SmemAddr words = ptx::smem_address(shared.words);
#pragma unroll
        for (uint32_t w = 0; w < Piece::kWords; ++w) {
            const auto place = [&](uint32_t r) { return words + p.tile.at(C, word_in_tile + w, r) * 4; };
            if (Access == ScaleAccess::FourRows) {
                const uint32_t grouped = grouped_rows<Groups>(shared, wanted ? row : 0);
                ptx::Words4 v;
#pragma unroll
                for (uint32_t r = 0; r < 4; ++r) v.w[r] = grouped >> r & 1u ? word(p.rounding, w * C.loaded(), r) : 0;
                ptx::store_shared_words_x4_if(wanted, place(row), v);
            } else {
                const bool exists = (grouped_rows<Groups>(shared, wanted ? row : 0) & 1u) != 0;
                ptx::store_shared_word_if(wanted, place(row), exists ? word(p.rounding, w * C.loaded(), 0) : 0);
            }
        }
    }
};

/// Which columns of the matrix word `word` of the tile takes.
template <ScaleGroupKind Groups, ScaleLayoutConfig C>
__device__ WordSource source_of(const ScaleLayoutParams& p, const ScaleOrigin& origin, const SharedScales<C>& shared,
                                uint32_t word) {
    if (C.transform != ScaleTransform::Pack) return {origin.word + word, 1};
    WordSource source{(origin.word + word) * kExponentsPerWord, kExponentsPerWord};
    if (Groups == ScaleGroupKind::K) source = shared.sources[word];
    return {source.first, source.first < p.in_cols ? min(source.count, p.in_cols - source.first) : 0};
}

/// Words of the tile in a row, without those behind the matrix.
template <ScaleLayoutConfig C>
__device__ uint32_t words_in(const ScaleLayoutParams& p, const ScaleOrigin& origin) {
    return min(p.tile.words, ceil_div(p.out_cols, C.stored()) - origin.word);
}

/// Loads the tile, up to sixteen scales of each thread at once. `Groups`: those that the tile must know of.
template <ScaleAccess Access, ScaleGroupKind Groups, ScaleLayoutConfig C>
__device__ void load_tile(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    using Piece = ScalePiece<Access, C.loaded()>;
    constexpr uint32_t kMost = Groups == ScaleGroupKind::Rows ? 4 : 8;  // with more, masks of rows spill
    constexpr uint32_t kUnroll = max(1, min(C.at_once() / (Piece::kRows * Piece::kCols * C.stored()), kMost));
    const bool down = Access != ScaleAccess::FourCols && p.load.down;
    const uint32_t rows = ceil_div(min(p.tile.rows, p.rows - origin.row), Piece::kRows);
    const uint32_t words = ceil_div(words_in<C>(p, origin), Piece::kWords);
    const uint32_t lane = p.load.lane(threadIdx.x), outer = p.load.outer(threadIdx.x);
    const uint32_t end = down ? words : rows, step = C.threads() >> p.load.lanes_log2;
    if (lane >= (down ? rows : words)) return;
    constexpr bool kAnywhere = Groups == ScaleGroupKind::K;  // each word's columns have a place of their own
    const uint8_t* from = p.in + origin.matrix * p.in_strides.matrix + origin.row * p.in_strides.row;
    if (!kAnywhere) from += static_cast<uint64_t>(origin.word) * C.loaded() * p.in_strides.col;
    if (!kAnywhere || down) from += lane * p.load.lane_bytes;
    if (!kAnywhere || !down) from += outer * p.load.outer_bytes;
    const int64_t further = kAnywhere && down ? 0 : p.load.step_bytes;
    for (uint32_t first = outer; first < end; first += kUnroll * step) {
        LoadedScales<C, Access, Groups> pieces[kUnroll];
        const auto row_of = [&](uint32_t u) { return (down ? lane : first + u * step) * Piece::kRows; };
        const auto word_of = [&](uint32_t u) { return (down ? first + u * step : lane) * Piece::kWords; };
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u, from += further) {
            const bool wanted = first + u * step < end;
            // What is not loaded has an address all the same, but no place in the tile's shared memory.
            const WordSource source = source_of<Groups>(p, origin, shared, wanted ? word_of(u) : 0);
            pieces[u].cols = wanted ? source.count : 0;
            if (Groups == ScaleGroupKind::Rows) {
                const uint32_t grouped = grouped_rows<Groups>(shared, wanted ? row_of(u) : 0);
                if ((grouped & ((1u << Piece::kRows) - 1)) == 0) pieces[u].cols = 0;
            }
            pieces[u].load(kAnywhere ? from + source.first * p.in_strides.col : from, p.in_strides.col);
        }
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u)
            pieces[u].put_if(first + u * step < end, p, shared, word_of(u), row_of(u));
    }
}

/// Loads the tile where each row of the input is repeated: one word of a thread at a time, which fills its column.
template <ScaleGroupKind Groups, ScaleLayoutConfig C>
__device__ void load_repeated(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    const uint32_t words = words_in<C>(p, origin), lane = p.load.lane(threadIdx.x);
    if (lane >= words) return;
    const WordSource source = source_of<Groups>(p, origin, shared, lane);
    const uint8_t* from = p.in + origin.matrix * p.in_strides.matrix + source.first * p.in_strides.col;
    const uint32_t length = min(1u << p.row_shift, p.tile.rows);
    for (uint32_t first = p.load.outer(threadIdx.x) * length; first < min(p.tile.rows, p.rows - origin.row);
         first += (C.threads() >> p.load.lanes_log2) * length) {
        bool any = false;
        for (uint32_t row = first; row < first + length; row += 32) any |= grouped_rows<Groups>(shared, row) != 0;
        LoadedScales<C, ScaleAccess::Single, Groups> piece;
        piece.cols = any ? source.count : 0;
        piece.load(from + ((origin.row + first) >> p.row_shift) * p.in_strides.row, p.in_strides.col);
        const uint32_t word = piece.word(p.rounding, 0, 0);
        for (uint32_t row = first; row < first + length; row += 4) {
            const uint32_t grouped = grouped_rows<Groups>(shared, row);
            ptx::Words4 v;
#pragma unroll
            for (uint32_t r = 0; r < 4; ++r) v.w[r] = grouped >> r & 1u ? word : 0;
            ptx::store_shared_words_x4(ptx::smem_address(shared.words + p.tile.at(C, lane, row)), v);
        }
    }
}

/// Column `c` of a word.
template <ScaleLayoutConfig C>
__device__ uint32_t stored_value(uint32_t word, uint32_t c) {
    return C.transform == ScaleTransform::Unpack ? unpacked_scale(word, c) : word;
}

template <ScaleLayoutConfig C, ScaleAccess Access>
__device__ void store_tile(const ScaleLayoutParams& p, const ScaleOrigin& origin, const SharedScales<C>& shared) {
    using Piece = ScalePiece<Access, C.stored()>;
    [[maybe_unused]] constexpr uint32_t kUnroll = 4 / Piece::kCols;
    const bool down = Access != ScaleAccess::FourCols && p.store.down;
    const uint32_t all_rows = min(p.tile.rows, p.rows - origin.row), rows = all_rows / Piece::kRows;
    const uint32_t all_words = words_in<C>(p, origin), words = ceil_div(all_words, Piece::kWords);
    const uint32_t lane = p.store.lane(threadIdx.x), outer = p.store.outer(threadIdx.x);
    const uint32_t end = down ? words : rows, step = C.threads() >> p.store.lanes_log2;
    const ScaleStrides& stride = p.out_strides;
    const uint32_t cols = p.out_cols - origin.word * C.stored();
    uint8_t* tile = p.out + origin.matrix * stride.matrix + origin.row * stride.row +
                    static_cast<uint64_t>(origin.word) * C.stored() * stride.col;
    uint8_t* to = tile + lane * p.store.lane_bytes + outer * p.store.outer_bytes;
    if (lane < (down ? rows : words))
#pragma unroll kUnroll
        for (uint32_t i = outer; i < end; i += step, to += p.store.step_bytes) {
            const uint32_t row = (down ? lane : i) * Piece::kRows, word = (down ? i : lane) * Piece::kWords;
            ptx::Words4 v;
            if (Access == ScaleAccess::FourRows)
                v = ptx::load_shared_words_x4(ptx::smem_address(shared.words + p.tile.at(C, word, row)));
            else
#pragma unroll
                for (uint32_t w = 0; w < Piece::kWords; ++w) v.w[w] = shared.words[p.tile.at(C, word + w, row)];
            if (Access == ScaleAccess::FourCols) {
                ptx::Words4 x;
#pragma unroll
                for (uint32_t c = 0; c < 4; ++c) x.w[c] = stored_value<C>(v.w[c / C.stored()], c % C.stored());
                ptx::store_global_x4(to, x);
                continue;
            }
#pragma unroll
            for (uint32_t c = 0; c < Piece::kCols; ++c) {
                const bool exists = C.stored() == 1 || word * C.stored() + c < cols;
                if (Access == ScaleAccess::FourRows) {
                    ptx::Words4 x;
#pragma unroll
                    for (uint32_t r = 0; r < 4; ++r) x.w[r] = stored_value<C>(v.w[r], c);
                    ptx::store_global_x4_if(exists, to + c * stride.col, x);
                } else {
                    ptx::store_global_if(exists, to + c * stride.col, stored_value<C>(v.w[0], c));
                }
            }
        }
    // Up to three rows that are left.
    for (uint32_t row = rows * Piece::kRows; row < all_rows; ++row)
        for (uint32_t col = threadIdx.x; col < min(all_words * C.stored(), cols); col += C.threads())
            ptx::store_global(tile + row * stride.row + col * stride.col,
                              stored_value<C>(shared.words[p.tile.at(C, col / C.stored(), row)], col % C.stored()));
}

/// Columns that are contiguous before and after: each thread stores the four rows of a word that it has loaded.
template <ScaleLayoutConfig C>
__device__ void copy_columns(const ScaleLayoutParams& p, uint32_t tile) {
    constexpr uint32_t kUnroll = C.direct_pieces();
    LoadedScales<C, ScaleAccess::FourRows, ScaleGroupKind::None> pieces[kUnroll];
    uint8_t* to[kUnroll];
    bool exists[kUnroll];
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t piece = (tile * kUnroll + u) * C.threads() + threadIdx.x;
        const ScaleOrigin at = scale_piece(p, piece);
        const uint32_t col = at.word * C.loaded();
        exists[u] = piece < p.pieces;
        pieces[u].cols = exists[u] ? min(C.loaded(), p.in_cols - col) : 0;
        pieces[u].load(p.in + at.matrix * p.in_strides.matrix + at.row * p.in_strides.row +
                           static_cast<uint64_t>(col) * p.in_strides.col,
                       p.in_strides.col);
        to[u] = p.out + at.matrix * p.out_strides.matrix + at.row * p.out_strides.row +
                static_cast<uint64_t>(at.word) * p.out_strides.col;
    }
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
        ptx::Words4 v;
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) v.w[r] = pieces[u].word(p.rounding, 0, r);
        ptx::store_global_x4_if(exists[u], to[u], v);
    }
}

/// Rows that are contiguous before, columns after: each thread stores four rows of a word that it has loaded, as one
/// vector.
template <ScaleLayoutConfig C>
__device__ void pack_fours(const ScaleLayoutParams& p) {
    const ScaleOrigin origin = scale_origin_across(p, blockIdx.x);
    const uint32_t lane = threadIdx.x & (p.tile.words - 1), word = origin.word + lane;
    const uint32_t row = origin.row + (threadIdx.x - lane) * p.tile.rows / C.threads();
    if (word >= p.out_cols || row >= p.rows) return;
    const uint8_t* from = p.in + origin.matrix * p.in_strides.matrix + row * p.in_strides.row + word * 16;
    LoadedScales<C, ScaleAccess::FourCols, ScaleGroupKind::None> loaded[4];
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r, from += p.in_strides.row) {
        loaded[r].cols = row + r < p.rows ? kExponentsPerWord : 0;
        loaded[r].load(from, 0);
    }
    ptx::Words4 v;
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) v.w[r] = loaded[r].word(p.rounding, 0, 0);
    uint8_t* const to = p.out + origin.matrix * p.out_strides.matrix + row * p.out_strides.row +
                        static_cast<uint64_t>(word) * p.out_strides.col;
    const bool vector = row + 3 < p.rows;
    ptx::store_global_x4_if(vector, to, v);
    if (!vector) [[unlikely]]
#pragma unroll
        for (uint32_t r = 0; r < 3; ++r) ptx::store_global_if(row + r < p.rows, to + r * sizeof(uint32_t), v.w[r]);
}

template <ScaleGroupKind Groups, ScaleLayoutConfig C>
__device__ void load_tile(const ScaleLayoutParams& p, const ScaleOrigin& origin, SharedScales<C>& shared) {
    using enum ScaleAccess;
    if (p.row_shift != 0) [[unlikely]]
        load_repeated<Groups>(p, origin, shared);
    else if (p.load.access == FourRows) load_tile<FourRows, Groups>(p, origin, shared);
    else if (Groups != ScaleGroupKind::K && p.load.access == FourCols) load_tile<FourCols, Groups>(p, origin, shared);
    else [[unlikely]] load_tile<Single, Groups>(p, origin, shared);
}

/// A CTA has neighbouring tiles; one, or its pieces, where threads store what they have loaded.
template <ScaleLayoutConfig C>
__device__ void scale_layout(const ScaleLayoutParams& p) {
    using enum ScaleAccess;
    if (C.direct == ScaleDirect::Rows) return pack_fours<C>(p);
    if (C.direct == ScaleDirect::Columns) return copy_columns<C>(p, blockIdx.x);
    __shared__ SharedScales<C> shared;
    uint32_t tile = blockIdx.x * p.share + min(blockIdx.x, p.rest);
    const uint32_t end = tile + p.share + (blockIdx.x < p.rest);
    constexpr bool kCopies = C.transform == ScaleTransform::Copy || C.transform == ScaleTransform::Round;
    if (kCopies && C.groups == ScaleGroupKind::None && p.columns) {
        for (; tile < end; ++tile) copy_columns<C>(p, tile);
        return;
    }
    for (uint32_t found = ~0u; tile < end; ++tile) {
        const ScaleOrigin origin = scale_origin(p, tile);
        if (C.takes_rows() && p.whole_rows) {
            pack_rows<C>(p, origin, shared);
            if (tile + 1 < end) __syncthreads();  // everybody has packed it
            continue;
        }
        if (C.groups == ScaleGroupKind::K) {
            if (origin.word != found) {
                find_k_groups<C>(p, origin, shared);
                __syncthreads();  // everybody has them
                found = origin.word;
            }
            load_tile<ScaleGroupKind::K>(p, origin, shared);
        } else {
            const uint32_t group = C.groups == ScaleGroupKind::Rows ? group_behind(p.groups, origin.row) : 0;
            if (C.groups == ScaleGroupKind::None || has_all_rows(p, origin, group)) {
                load_tile<ScaleGroupKind::None>(p, origin, shared);
            } else {
                find_row_groups<C>(p, origin, group, shared);
                __syncthreads();  // everybody has them
                load_tile<ScaleGroupKind::Rows>(p, origin, shared);
            }
        }
        __syncthreads();  // the tile is there
        if (p.store.access == FourRows) store_tile<C, FourRows>(p, origin, shared);
        else if (p.store.access == FourCols) store_tile<C, FourCols>(p, origin, shared);
        else [[unlikely]] store_tile<C, Single>(p, origin, shared);
        if (tile + 1 < end) __syncthreads();  // everybody has stored it
    }
}

}  // namespace finegemm::device
