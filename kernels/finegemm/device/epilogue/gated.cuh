// GatedEpilogue: D = the SwiGLU of the halves of the product's columns, in e4m3 with a scale for 128. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/quantize/quantize.h>
#include <finegemm/device/epilogue/store_bf16.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/swiglu.cuh>

namespace finegemm::device {

/// Where scales and weights of a tile's matrix begin, in elements.
__device__ inline int64_t stack_offset(const SegmentedParams&, const Tile&, int64_t) { return 0; }
__device__ inline int64_t stack_offset(const GroupedParams& p, const Tile& tile, int64_t stride) {
    return matrix_of(p, tile) * stride;
}

/// A tile has 128 gates and the 128 ups of these, as its segments lie in either half of D's columns (segment_col): a
/// thread has a gate and its up in the same registers of two WGMMAs, and four lanes have a row with one scale. They
/// exchange codes until each has whole pieces of the row. No warp waits for another one.
template <GemmConfig C>
struct GatedEpilogue {
    static_assert(kPlan<C>.store == Store::Registers && C.wgmmas_m() == 1 && C.k_slices() == 1 && C.cluster == 1);
    static_assert(C.wgmma_cols() == kScaleBlock && kPlan<C>.promotion == Promotion::BlockScale);
    static constexpr uint32_t kValues = C.wgmma_cols() / 2;  // of a thread: pairs of two rows in turn
    static constexpr uint32_t kRowLanes = 4;                 // that have a row

    const KernelParams<C>& p;
    uint32_t first_row;  // of this thread in a tile; the second one is eight rows below

    __device__ GatedEpilogue(const Params<C>& params, const Shared<C>&, uint32_t = 0, uint32_t = 0)
        : p(static_cast<const KernelParams<C>&>(params)),
          first_row(device::first_row_of<C>(threadIdx.x / kWarpSize) + threadIdx.x % kWarpSize / kRowLanes) {}

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}

    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) const {
        const GatedParams& f = p.finish;
        const SwigluRule rule{f.limit, f.slope, f.offset};
        float (&values)[kValues] = acc.sum[0];
        if (f.bf16_between) {
            round_to_bf16(acc.sum[0]);
            round_to_bf16(acc.sum[1]);
        }
        const float upper = weight(tile, first_row), lower = weight(tile, first_row + 8);
#pragma unroll
        for (uint32_t r = 0; r < kValues; ++r)
            values[r] = swiglu<PtxMath>(values[r], acc.sum[1][r], rule, r % 4 < 2 ? upper : lower);
        if (f.bf16_between) round_to_bf16(values);
        store<0>(values, tile);
        store<1>(values, tile);
    }

private:
    __device__ float weight(const Tile& tile, uint32_t row) const {
        const GatedParams& f = p.finish;
        if (!f.weights) return 1.0f;
        // Of the last row for those that the tile lacks: a branch would part the lanes.
        const int64_t of = tile.row + min(row, tile.rows - 1);
        return ptx::load_global(f.weights + stack_offset(p, tile, f.weight_stride) + of * f.weight_row_stride);
    }

    /// The bits of the largest finite magnitude of a row, which four lanes have; they get the same.
    template <uint32_t Half>
    __device__ static uint32_t largest_of_row(const float (&x)[kValues]) {
        float most = 0;
#pragma unroll
        for (uint32_t r = Half * 2; r < kValues; r += 4) {
            most = ptx::max_magnitude(most, ptx::nan_if_infinite(x[r]));
            most = ptx::max_magnitude(most, ptx::nan_if_infinite(x[r + 1]));
        }
        uint32_t bits = float_bits(most);
        bits = max(bits, ptx::shuffle_xor(bits, 1));
        return max(bits, ptx::shuffle_xor(bits, 2));
    }

    /// Words `a` and `b` of lanes that differ in the bits of `mask`: the lower lane gets both words `a`, the other one
    /// both words `b`, each in the order of lanes.
    __device__ static void exchange(uint32_t& a, uint32_t& b, uint32_t mask) {
        const bool upper = (threadIdx.x & mask) != 0;
        const uint32_t other = ptx::shuffle_xor(upper ? a : b, mask);
        if (upper) a = other;
        else b = other;
    }

    /// Stores the thread's row, or its part of it: the upper one, or eight below it.
    template <uint32_t Half>
    __device__ void store(const float (&x)[kValues], const Tile& tile) const {
        const GatedParams& f = p.finish;
        const uint32_t lane = threadIdx.x % kRowLanes, row = first_row + Half * 8;
        const float scale = block_scale_of(float_of_bits(largest_of_row<Half>(x)), f.power_of_two);
        const float inverse = PtxMath::reciprocal(scale);
        const int64_t to = tile.row + row;
        float* const scales = f.scales + stack_offset(p, tile, f.scale_stride) + to * f.scale_row_stride;
        ptx::store_global_if(row < tile.rows && lane == 0, scales + tile.col / kScaleBlock * f.scale_col_stride,
                             float_bits(scale));
        uint8_t* const d = static_cast<uint8_t*>(p.d_data) + matrix_offset(p, tile) + to * p.d_row_stride + tile.col;
        constexpr uint32_t kPieces = kScaleBlock / 16;  // of sixteen bytes, a word of each lane
#pragma unroll
        for (uint32_t first = 0; first < kPieces; first += kRowLanes) {
            uint32_t words[kRowLanes];
#pragma unroll
            for (uint32_t i = 0; i < kRowLanes; ++i) {
                const float* const pairs = &x[(first + i) * 8 + Half * 2];  // of eight columns, and of the next eight
                words[i] = ptx::pack_e4m3(ptx::multiply(pairs[0], inverse), ptx::multiply(pairs[1], inverse)) |
                           ptx::pack_e4m3(ptx::multiply(pairs[4], inverse), ptx::multiply(pairs[5], inverse)) << 16;
            }
            exchange(words[0], words[1], 1);
            exchange(words[2], words[3], 1);
            exchange(words[0], words[2], 2);
            exchange(words[1], words[3], 2);
            ptx::store_global_x4_if(
                row < tile.rows, d + (first + lane) * 16,
                ptx::Words4{{ptx::low_halves(words[0], words[1]), ptx::low_halves(words[2], words[3]),
                             ptx::high_halves(words[0], words[1]), ptx::high_halves(words[2], words[3])}});
        }
    }
};

}  // namespace finegemm::device
