// Quantisation kernels: values stay in registers between the search for the largest and the conversion. Layer device.
#pragma once

#include <finegemm/quantize/quantize.h>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// Four codes, the first one in the lowest byte.
template <QuantizeCodes Codes>
__device__ inline uint32_t pack_codes(float a, float b, float c, float d) {
    const auto pack = Codes == QuantizeCodes::E5M2 ? ptx::pack_e5m2 : ptx::pack_e4m3;
    return pack(a, b) | static_cast<uint32_t>(pack(c, d)) << 16;
}

/// Sixteen bytes of the input. They stay as they came: as floats they would take twice the registers.
template <QuantizeConfig C>
struct Values {
    static constexpr uint32_t kBytes = 16 / C.vector();
    ptx::Words4 words;

    __device__ void load(const QuantizeParams& p, uint64_t row, uint64_t col) {
        words = ptx::load_global_once(static_cast<const uint8_t*>(p.x) + (row * p.x_row_stride + col) * kBytes);
    }
    __device__ void clear() { words = {}; }
    __device__ float at(uint32_t i) const {
        const uint32_t word = words.w[i * kBytes / 4];
        const uint16_t half = static_cast<uint16_t>(word >> (i * kBytes % 4 * 8));
        if constexpr (C.input == QuantizeInput::F32) return float_of_bits(word);
        else if constexpr (C.input == QuantizeInput::F16) return ptx::float_of_half(half);
        else return float_of_bf16(half);
    }
    __device__ uint32_t largest() const {
        uint32_t most = 0;
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); ++i) most = max(most, finite_magnitude(at(i)));
        return most;
    }
    __device__ void store(const QuantizeParams& p, uint64_t row, uint64_t col, float inverse) const {
        uint32_t w[C.vector() / 4];
#pragma unroll
        for (uint32_t i = 0; i < C.vector(); i += 4)
            w[i / 4] =
                pack_codes<C.codes>(at(i) * inverse, at(i + 1) * inverse, at(i + 2) * inverse, at(i + 3) * inverse);
        uint8_t* to = p.q + row * p.q_row_stride + col;
        if constexpr (C.vector() == 8) ptx::store_global_x2(to, w[0], w[1]);
        else ptx::store_global(to, w[0]);
    }
};

/// The largest over `lanes` neighbouring lanes, in all of them.
__device__ inline uint32_t largest_of(uint32_t x, uint32_t lanes) {
#pragma unroll
    for (uint32_t mask = 1; mask < 32; mask *= 2)
        if (mask < lanes) x = max(x, ptx::shuffle_xor(x, mask));
    return x;
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
            values[u].store(p, row, col, inverse_scale(scale));
            if (col % kScaleBlock == 0)
                ptx::store_global(p.scales + row * p.scale_row_stride + col / kScaleBlock * p.scale_col_stride, scale);
        }
    }
}

/// 128x128: a CTA takes a block at a time.
template <QuantizeConfig C>
__device__ void quantize_blocks(const QuantizeParams& p) {
    __shared__ uint32_t most[C.warps()];
    const uint64_t tasks = quantize_tasks(C, p.rows, p.cols);
    for (uint64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const RowCol first = quantize_origin(C, p.cols, task);
        const auto position = [&](uint32_t u) {
            const RowCol inside = quantize_vector(C, threadIdx.x, u);
            return RowCol{first.row + inside.row, first.col + inside.col};
        };
        Values<C> values[C.unroll()];
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const RowCol at = position(u);
            if (at.row < p.rows && at.col < p.cols) values[u].load(p, at.row, at.col);
            else values[u].clear();
        }
        uint32_t largest = 0;
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) largest = max(largest, values[u].largest());
        largest = largest_of(largest, 32);
        __syncthreads();  // everybody has read the last block's
        if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = largest;
        __syncthreads();
#pragma unroll
        for (uint32_t w = 0; w < C.warps(); ++w) largest = max(largest, most[w]);
        const float scale = block_scale(largest, p.power_of_two, C.codes), inverse = inverse_scale(scale);
#pragma unroll
        for (uint32_t u = 0; u < C.unroll(); ++u) {
            const RowCol at = position(u);
            if (at.row < p.rows && at.col < p.cols) values[u].store(p, at.row, at.col, inverse);
        }
        if (threadIdx.x == 0) {
            const int64_t down = first.row / kScaleBlock, right = first.col / kScaleBlock;
            ptx::store_global(p.scales + down * p.scale_row_stride + right * p.scale_col_stride, scale);
        }
    }
}

template <QuantizeConfig C>
__device__ void quantize(const QuantizeParams& p) {
    if constexpr (C.square_blocks) quantize_blocks<C>(p);
    else quantize_rows<C>(p);
}

}  // namespace finegemm::device
