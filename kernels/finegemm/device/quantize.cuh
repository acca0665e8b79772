// Quantisation kernels: values stay in registers between the search for the largest and the conversion. Layer device.
#pragma once

#include <finegemm/quantize/quantize.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// Four codes, the first one in the lowest byte.
template <QuantizeCodes Codes>
__device__ inline uint32_t pack_codes(float a, float b, float c, float d) {
    const auto pack = Codes == QuantizeCodes::I8     ? ptx::pack_i8
                      : Codes == QuantizeCodes::E5M2 ? ptx::pack_e5m2
                                                     : ptx::pack_e4m3;
    return pack(a, b) | static_cast<uint32_t>(pack(c, d)) << 16;
}

/// Sixteen bytes of the input. They stay as they came: as floats they would take twice the registers.
template <QuantizeConfig C>
struct Values {
    static constexpr uint32_t kBytes = 16 / C.vector(), kCodeWords = C.vector() / 4, kInfinity = 0x7f800000u;
    struct Codes {
        uint32_t w[kCodeWords];
    };
    ptx::Words4 words;

    __device__ void load(const uint8_t* from) { words = ptx::load_global_once(from); }
    __device__ void load(const QuantizeParams& p, uint64_t row, uint64_t col) {
        load(static_cast<const uint8_t*>(p.x) + (row * p.x_row_stride + col) * kBytes);
    }
    __device__ void clear() { words = {}; }
    __device__ float at(uint32_t i) const {
        const uint32_t word = words.w[i * kBytes / 4];
        const uint16_t half = static_cast<uint16_t>(word >> (i * kBytes % 4 * 8));
        if constexpr (C.input == QuantizeInput::F32) return float_of_bits(word);
        else if constexpr (C.input == QuantizeInput::F16) return ptx::float_of_half(half);
        else return float_of_bf16(half);
    }
    /// The bits of the largest finite magnitude. Infinities are rare: then it is looked for once more. Whole rows leave
    /// no registers for that.
    __device__ uint32_t largest() const {
        if (const uint32_t most = C.whole_rows ? kInfinity : number_of(larger(0)); most < kInfinity) return most;
        return largest_finite();
    }
    __device__ uint32_t largest_finite() const {
        uint32_t most = 0;
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); ++i) most = max(most, finite_magnitude(at(i)));
        return most;
    }
    __device__ Codes codes(float inverse) const {
        Codes codes;
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); i += 4)
            codes.w[i / 4] =
                pack_codes<C.codes>(at(i) * inverse, at(i + 1) * inverse, at(i + 2) * inverse, at(i + 3) * inverse);
        return codes;
    }
    /// The larger of `most` and of all magnitudes here, whatever is NaN: of bf16 two at a time, of which number_of
    /// makes the bits of one.
    __device__ uint32_t larger(uint32_t most) const {
        if (C.input == QuantizeInput::BF16) {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) most = ptx::larger_magnitudes_bf16(most, words.w[i]);
            return most;
        }
        float number = float_of_bits(most);
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); ++i) number = ptx::max_magnitude(number, at(i));
        return float_bits(number);
    }
    __device__ static uint32_t number_of(uint32_t most) {
        return C.input == QuantizeInput::BF16 ? max((most & 0x7fffu) << 16, most & 0x7fff0000u) : most;
    }
    __device__ static void store_if(bool wanted, uint8_t* to, const Codes& codes) {
        if (C.vector() == 8) ptx::store_global_x2_if(wanted, to, codes.w[0], codes.w[kCodeWords - 1]);
        else ptx::store_global_if(wanted, to, codes.w[0]);
    }
    __device__ static void store(const QuantizeParams& p, uint64_t row, uint64_t col, const Codes& codes) {
        store(p.q + row * p.q_row_stride + col, codes);
    }
    __device__ static void store(uint8_t* to, const Codes& codes) {
        if (C.vector() == 8) ptx::store_global_x2(to, codes.w[0], codes.w[kCodeWords - 1]);
        else ptx::store_global(to, codes.w[0]);
    }
};

/// The largest over `lanes` neighbouring lanes, in all of them.
__device__ inline uint32_t largest_of(uint32_t x, uint32_t lanes) {
#pragma unroll
    for (uint32_t mask = 1; mask < 32; mask *= 2)
        if (mask < lanes) x = max(x, ptx::shuffle_xor(x, mask));
    return x;
}

/// Four words as the rows of a matrix of bytes become its columns.
__device__ inline void transpose_bytes(ptx::Words4& v) {
    const uint32_t upper_left = ptx::interleave_low(v.w[0], v.w[1]), lower_left = ptx::interleave_low(v.w[2], v.w[3]);
    const uint32_t upper_right = ptx::interleave_high(v.w[0], v.w[1]);
    const uint32_t lower_right = ptx::interleave_high(v.w[2], v.w[3]);
    v = {{ptx::low_halves(upper_left, lower_left), ptx::high_halves(upper_left, lower_left),
          ptx::low_halves(upper_right, lower_right), ptx::high_halves(upper_right, lower_right)}};
}

/// 1x128: a warp takes consecutive blocks of one row at a time.
template <QuantizeConfig C>
__device__ void quantize_rows(const QuantizeParams& p) {
    const uint64_t tasks = quantize_tasks(C, p.rows, p.cols);
    for (uint64_t task = blockIdx.x * static_cast<uint64_t>(C.warps()) + threadIdx.x / 32; task < tasks;
         task += gridDim.x * static_cast<uint64_t>(C.warps())) {
        const RowCol first = quantize_origin(C, p.cols, task);
        const uint64_t row = first.row;
        Values<C> values[C.unroll()];
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const uint64_t col = first.col + quantize_vector(C, threadIdx.x, u).col;
            if (col < p.cols) values[u].load(p, row, col);
            else values[u].clear();
        }
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const uint64_t col = first.col + quantize_vector(C, threadIdx.x, u).col;
            const float scale = block_scale(largest_of(values[u].largest(), C.lanes()), p.power_of_two, C.codes);
            if (col >= p.cols) continue;
            values[u].store(p, row, col, values[u].codes(inverse_scale(scale)));
            if (col % kScaleBlock == 0)
                ptx::store_global(p.scales + row * p.scale_row_stride + col / kScaleBlock * p.scale_col_stride, scale);
        }
    }
}

template <QuantizeConfig C>
struct SharedBlock {
    alignas(16) uint32_t words[kScaleBlock * kScaleBlock / 4];  // of codes (QuantizeConfig::place)
    uint32_t most[C.warps()];
};

/// Writes a tile of codes from shared memory; 16 bytes of a lane, 128 of eight neighbours. `first`: of x.
template <QuantizeConfig C>
__device__ void store_columns(const TransposedCodes& to, RowCol first, ptx::SmemAddr words) {
    constexpr uint32_t kBytes = 16, kAcross = kScaleBlock / kBytes;
#pragma unroll 1  // else what is the same for all tiles is kept in registers, and spills
    for (uint32_t i = threadIdx.x; i < kScaleBlock * kAcross; i += C.threads()) {
        const uint32_t col = i / kAcross, row = i % kAcross * kBytes;
        const uint32_t place = C.place(col, row / C.kTileRows);
        ptx::Words4 v = ptx::load_shared_words_x4(words + place / kBytes * kBytes);
        if (place % kBytes != 0) v = {{v.w[2], v.w[3], v.w[0], v.w[1]}};  // its two pieces are turned
        ptx::store_global_x4_if(first.col + col < to.rows && first.row + row < to.cols,
                                to.q + static_cast<uint64_t>(first.col + col) * to.row_stride + first.row + row, v);
    }
}

/// A thread's part of a 128x128 block.
template <QuantizeConfig C>
struct BlockValues {
    using Codes = typename Values<C>::Codes;
    Values<C> rows[C.kTileRows];

    __device__ void load(const QuantizeParams& p, uint32_t matrix, RowCol at) {
        const uint8_t* const first = static_cast<const uint8_t*>(p.x) +
                                     (matrix * p.x_stride + at.row * p.x_row_stride + at.col) * Values<C>::kBytes;
        const uint32_t existing = at.col < p.cols && at.row < p.rows ? p.rows - at.row : 0;
#pragma unroll
        for (uint32_t u = 0; u < C.kTileRows; ++u) {
            // Both say the same: the compiler keeps more loads of floats in flight with the first, of halves with the
            // second.
            const bool exists = C.input == QuantizeInput::F32 ? u < existing : at.row + u < p.rows && at.col < p.cols;
            if (exists) rows[u].load(first + u * p.x_row_stride * Values<C>::kBytes);
            else rows[u].clear();
        }
    }
    __device__ uint32_t largest() const {
        uint32_t most = rows[0].largest();
#pragma unroll
        for (uint32_t u = 1; u < C.kTileRows; ++u) most = max(most, rows[u].largest());
        return most;
    }
    /// Writes the codes of its rows, and hands them out.
    __device__ void quantize(const QuantizeParams& p, uint32_t matrix, RowCol at, float inverse,
                             Codes (&codes)[C.kTileRows]) const {
        uint8_t* const first = p.q + matrix * p.q_stride + at.row * p.q_row_stride + at.col;
#pragma unroll
        for (uint32_t u = 0; u < C.kTileRows; ++u) {
            codes[u] = rows[u].codes(inverse);
            if (at.row + u < p.rows && at.col < p.cols) rows[u].store(first + u * p.q_row_stride, codes[u]);
        }
    }
    /// Puts codes to their places in shared memory: four of each row at a time become four of each column.
    __device__ static void transpose(const Codes (&codes)[C.kTileRows], RowCol mine, ptx::SmemAddr words) {
#pragma unroll
        for (uint32_t w = 0; w < Values<C>::kCodeWords; ++w) {
            ptx::Words4 upper{{codes[0].w[w], codes[1].w[w], codes[2].w[w], codes[3].w[w]}};
            ptx::Words4 lower{{codes[4].w[w], codes[5].w[w], codes[6].w[w], codes[7].w[w]}};
            transpose_bytes(upper);
            transpose_bytes(lower);
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i)
                ptx::store_shared_words_x2(words + C.place(mine.col + w * 4 + i, mine.row / C.kTileRows), upper.w[i],
                                           lower.w[i]);
        }
    }
};

/// 128x128: a CTA takes a block at a time.
template <QuantizeConfig C>
__device__ void quantize_blocks(const QuantizeParams& p) {
    __shared__ SharedBlock<C> shared;
    const ptx::SmemAddr words = ptx::smem_address(shared.words);
    const RowCol mine = C.origin(threadIdx.x);
    const uint64_t tasks = quantize_tasks(C, p.rows, p.cols) * p.matrices;
    for (uint64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const auto [matrix, first] = stack_block(p.rows, p.cols, task);
        const RowCol at{first.row + mine.row, first.col + mine.col};
        BlockValues<C> values;
        values.load(p, matrix, at);
        uint32_t largest = largest_of(values.largest(), kWarpSize);
        __syncthreads();  // everybody has read the last block's largest, and its codes
        if (threadIdx.x % kWarpSize == 0) shared.most[threadIdx.x / kWarpSize] = largest;
        __syncthreads();
#pragma unroll
        for (uint32_t w = 0; w < C.warps(); ++w) largest = max(largest, shared.most[w]);
        const float scale = block_scale(largest, p.power_of_two, C.codes);
        typename Values<C>::Codes codes[C.kTileRows];
        values.quantize(p, matrix, at, inverse_scale(scale), codes);
        if (threadIdx.x == 0) {
            const int64_t down = first.row / kScaleBlock, right = first.col / kScaleBlock;
            ptx::store_global(
                p.scales + matrix * p.scale_stride + down * p.scale_row_stride + right * p.scale_col_stride, scale);
        }
        if (!p.transposed) continue;
        values.transpose(codes, mine, words);
        __syncthreads();  // all codes are there
        store_columns<C>(p.columns(matrix), first, words);
    }
}

/// Vectors of a thread in one part of a row: `lanes` neighbours have neighbouring ones.
template <QuantizeConfig C>
struct RowPart {
    Values<C> values[C.unroll()];

    __device__ void load(const QuantizeParams& p, uint64_t row, uint32_t first, uint32_t lanes) {
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const uint32_t col = first + u * lanes * C.vector();
            if (row < p.rows && col < p.cols) values[u].load(p, row, col);
            else values[u].clear();
        }
    }
    __device__ uint32_t largest() const {
        uint32_t most = values[0].largest();
#pragma unroll
        for (uint32_t u = 1; u < C.unroll(); ++u) most = max(most, values[u].largest());
        return most;
    }
    __device__ void store(const QuantizeParams& p, uint64_t row, uint32_t first, uint32_t lanes, float inverse) const {
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const uint32_t col = first + u * lanes * C.vector();
            if (row < p.rows && col < p.cols) Values<C>::store(p, row, col, values[u].codes(inverse));
        }
    }
};

/// Whole rows: as many warps as hold a row take it together. Of a longer one the last part stays in registers; the
/// others are loaded once more, the last first, as those are nearest.
template <QuantizeConfig C>
__device__ void quantize_whole_rows(const QuantizeParams& p) {
    __shared__ uint32_t largest_of_warp[2][C.warps()];  // by turns: a row's are read while the next one's are written
    const uint32_t warps = C.row_warps(p.cols), lanes = warps * kWarpSize, part_cols = C.held(warps);
    const uint32_t warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
    const uint32_t mine = threadIdx.x % lanes * C.vector(), last = (p.cols - 1) / part_cols * part_cols;
    const uint64_t rows_at_once = C.warps() / warps;
    uint32_t turn = 0;
    for (uint64_t first = blockIdx.x * rows_at_once; first < p.rows; first += gridDim.x * rows_at_once, turn ^= 1) {
        const uint64_t row = first + threadIdx.x / lanes;
        RowPart<C> part;
        part.load(p, row, mine, lanes);
        uint32_t largest = part.largest();
#pragma unroll 1
        for (uint32_t at = part_cols; at <= last; at += part_cols) {
            part.load(p, row, at + mine, lanes);
            largest = max(largest, part.largest());
        }
        largest = largest_of(largest, kWarpSize);
        if (lane == 0) largest_of_warp[turn][warp] = largest;
        __syncthreads();  // all warps of the row have written theirs
        largest = largest_of(largest_of_warp[turn][warp / warps * warps + lane % warps], kWarpSize);
        const float scale = block_scale(largest, p.power_of_two, C.codes), inverse = inverse_scale(scale);
        if (mine == 0 && row < p.rows) ptx::store_global(p.scales + row * p.scale_row_stride, scale);
        part.store(p, row, last + mine, lanes, inverse);
#pragma unroll 1
        for (uint32_t at = last; at > 0;) {
            at -= part_cols;
            part.load(p, row, at + mine, lanes);
            part.store(p, row, at + mine, lanes, inverse);
        }
    }
}

template <QuantizeConfig C>
__device__ void quantize(const QuantizeParams& p) {
    if constexpr (C.whole_rows) quantize_whole_rows<C>(p);
    else if constexpr (C.square_blocks) quantize_blocks<C>(p);
    else quantize_rows<C>(p);
}

}  // namespace finegemm::device
