// Kernels that give codes with exponents for 32 of K (MX) one scale for 128. Layer device.
#pragma once

#include <finegemm/quantize/reencode.h>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/quantize.cuh>

namespace finegemm::device {

/// Sixteen codes of a row, which have one exponent.
struct MxCodes {
    static constexpr uint32_t kWords = ReencodeConfig::kVector / 4;
    ptx::Words4 words;
    uint32_t exponent;

    __device__ void load(const ReencodeParams& p, uint32_t matrix, RowCol at) {
        const uint64_t row = at.row;
        words = ptx::load_global_once(p.codes + matrix * p.code_stride + row * p.code_row_stride + at.col);
        const uint32_t* const exponents = p.words + matrix * p.word_stride + row * p.word_row_stride;
        exponent = exponent_in(float_bits(ptx::load_global(reinterpret_cast<const float*>(
                                   exponents + at.col / kScaleBlock * p.word_col_stride))),
                               at.col);
    }
    __device__ void clear() { words = {}, exponent = 0; }
    /// Four of them as floats.
    __device__ static void decode(uint32_t word, float (&x)[4]) {
        const ptx::Float2 lower = ptx::unpack_f16(ptx::halves_of_lower_e4m3(word)),
                          upper = ptx::unpack_f16(ptx::halves_of_upper_e4m3(word));
        x[0] = lower.part[0], x[1] = lower.part[1], x[2] = upper.part[0], x[3] = upper.part[1];
    }
    /// The exponent that all of them need.
    __device__ uint32_t needed() const {
        float largest = 0;
#pragma unroll
        for (uint32_t w = 0; w < kWords; ++w) {
            float x[4];
            decode(words.w[w], x);
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) largest = ptx::max_magnitude(largest, x[i]);
        }
        return exponent_needed(largest, exponent);
    }
    /// Codes beside the scale of that exponent.
    __device__ ptx::Words4 moved(uint32_t needed) const {
        const float factor = code_factor(exponent, needed);
        ptx::Words4 to;
#pragma unroll
        for (uint32_t w = 0; w < kWords; ++w) {
            float x[4];
            decode(words.w[w], x);
            to.w[w] = pack_codes<QuantizeCodes::E4M3>(x[0] * factor, x[1] * factor, x[2] * factor, x[3] * factor);
        }
        return to;
    }
    /// Is a value not what it was? NaN is.
    __device__ bool differs(const ptx::Words4& to, uint32_t needed) const {
        const float factor = code_factor(exponent, needed);
        bool differs = false;
#pragma unroll
        for (uint32_t w = 0; w < kWords; ++w) {
            float before[4], after[4];
            decode(words.w[w], before);
            decode(to.w[w], after);
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) differs |= before[i] * factor != after[i] && after[i] == after[i];
        }
        return differs;
    }
};

/// Adds up groups of 128 of a row that have changed, of a warp; `differs`: of a lane.
__device__ inline void count_changed(const ReencodeParams& p, bool differs) {
    constexpr uint32_t kFirst = 0x01010101;  // lanes of groups
    uint32_t lanes = ptx::ballot(differs);
#pragma unroll
    for (uint32_t distance = 1; distance < ReencodeConfig::kLanes; distance *= 2) lanes |= lanes >> distance;
    const uint32_t groups = ptx::count_bits(lanes & kFirst);
    if (threadIdx.x % kWarpSize == 0 && groups > 0) atomicAdd(p.changed, groups);
}

/// The largest of what the warps of a CTA have, in all threads.
template <ReencodeConfig C>
__device__ uint32_t largest_of_cta(uint32_t x) {
    __shared__ uint32_t most[C.warps()];
    x = largest_of(x, kWarpSize);
    __syncthreads();  // everybody has read the last block's
    if (threadIdx.x % kWarpSize == 0) most[threadIdx.x / kWarpSize] = x;
    __syncthreads();
    return largest_of(most[threadIdx.x % kWarpSize], kWarpSize);
}

template <ReencodeConfig C>
__device__ void reencode(const ReencodeParams& p) {
    static_assert(!C.square_blocks || C.warps() == kWarpSize);
    ptx::grid_dependency_wait();  // codes may still be written until then, and q be read
    ptx::grid_launch_dependents();
    const RowCol mine = C.origin(threadIdx.x);
    const uint64_t tasks = reencode_tasks(C, p.rows, p.cols, p.matrices);
    for (uint64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const auto [matrix, first] = reencode_task(C, p.rows, p.cols, task);
        const uint32_t col = first.col + mine.col;
        MxCodes codes[C.unroll()];
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const uint32_t row = first.row + mine.row + u * C.warps();
            if (row < p.rows && col < p.cols) codes[u].load(p, matrix, {row, col});
            else codes[u].clear();
        }
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const uint32_t row = first.row + mine.row + u * C.warps();
            uint32_t needed = codes[u].needed();
            needed = C.square_blocks ? largest_of_cta<C>(needed) : largest_of(needed, C.kLanes);
            const ptx::Words4 moved = codes[u].moved(needed);
            const bool exists = row < p.rows && col < p.cols;
            ptx::store_global_x4_if(exists, p.q + matrix * p.q_stride + uint64_t{row} * p.q_row_stride + col, moved);
            if (exists && col % kScaleBlock == 0 && (!C.square_blocks || mine.row == 0))
                ptx::store_global(p.scales + matrix * p.scale_stride +
                                      uint64_t{C.square_blocks ? row / kScaleBlock : row} * p.scale_row_stride +
                                      col / kScaleBlock * p.scale_col_stride,
                                  reencoded_scale(needed));
            if (p.changed) count_changed(p, exists && codes[u].differs(moved, needed));
        }
    }
}

}  // namespace finegemm::device
