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

/// A tile has 128 gates and the 128 ups of these, or 64 of either, as its segments lie in either half of D's columns
/// (segment_col): a thread has a gate and its up, and four lanes have a row. They exchange codes until each has whole
/// pieces of the row. With 128 gates no warp waits for another one. Of 64 a scale is that of two CTAs of a cluster:
/// each warp waits until its neighbour has sent the largest of its rows.
template <GemmConfig C>
struct GatedEpilogue {
    static constexpr bool kShares = C.d_sharers() > 1;
    static constexpr uint32_t kCols = C.tile_n / 2;  // of D
    static constexpr uint32_t kValues = kCols / 2;   // of a thread: pairs of two rows in turn
    static constexpr uint32_t kRowLanes = 4;         // that have a row
    /// One math warpgroup has few rows, and its CTA a tile or two: most of the time of so few epilogues is their code
    /// coming from memory, so that it is kept short.
    static constexpr bool kShort = C.math_warpgroups == 1;
    static_assert(kPlan<C>.store == Store::Registers && kPlan<C>.promotion == Promotion::BlockScale);
    static_assert(kCols * C.cluster == kScaleBlock && C.cluster == C.d_sharers());
    static_assert(C.wgmmas_m() == 1 && C.k_slices() == 1);

    const KernelParams<C>& p;
    const Shared<C>& smem;
    uint32_t first_row;  // of this thread in a tile; the second one is eight rows below
    uint32_t tiles = 0;  // before this one

    __device__ GatedEpilogue(const Params<C>& params, const Shared<C>& shared, uint32_t = 0, uint32_t = 0)
        : p(static_cast<const KernelParams<C>&>(params)),
          smem(shared),
          first_row(device::first_row_of<C>(threadIdx.x / kWarpSize) + threadIdx.x % kWarpSize / kRowLanes) {}

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}

    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) {
        float values[kValues];
        if (kShort) activate_by_eights(values, acc, tile);
        else if (is_plain()) activate<true>(values, acc, tile);
        else activate<false>(values, acc, tile);
        uint32_t largest[2] = {largest_of_row<0>(values), largest_of_row<1>(values)};
        if (kShares) join_neighbour(largest);
        store<0>(values, largest[0], tile);
        store<1>(values, largest[1], tile);
    }

private:
    /// Sums of the thread's gates, and of their ups.
    __device__ static float& gate(Accumulator<C>& acc, uint32_t i) { return acc.sum[0][i]; }
    __device__ static float& up(Accumulator<C>& acc, uint32_t i) {
        return C.wgmmas() > 1 ? acc.sum[C.wgmmas() - 1][i] : acc.sum[0][kValues + i];
    }

    /// There is neither a limit nor an offset nor are there weights, and the slope is 1.
    __device__ bool is_plain() const {
        const GatedParams& f = p.finish;
        return f.limit == float_of_bits(0x7f800000u) && f.slope == 1 && f.offset == 0 && !f.weights;
    }

    /// What is quantised. `Plain`: is_plain, which saves clamps, and products by one.
    template <bool Plain>
    __device__ void activate(float (&values)[kValues], Accumulator<C>& acc, const Tile& tile) const {
        if (p.finish.bf16_between)
#pragma unroll
            for (uint32_t i = 0; i < C.wgmmas(); ++i) round_to_bf16(acc.sum[i]);
        const SwigluRule rule{p.finish.limit, p.finish.slope, p.finish.offset};
        float weights[2] = {};
#pragma unroll
        for (uint32_t i = 0; i < 2 && !Plain; ++i) weights[i] = weight(tile, first_row + i * 8);
#pragma unroll
        for (uint32_t r = 0; r < kValues; ++r) {
            const float of = gate(acc, r);
            if (Plain) values[r] = of * sigmoid<PtxMath>(of) * up(acc, r);
            else values[r] = swiglu<PtxMath>(of, up(acc, r), rule, weights[r % 4 / 2]);
        }
        if (p.finish.bf16_between) round_to_bf16(values);
    }

    /// What is quantised, by short code: a loop over eight pairs, which takes the first ones of the registers and moves
    /// the others up, as registers have no indices at run time.
    __device__ void activate_by_eights(float (&values)[kValues], Accumulator<C>& acc, const Tile& tile) const {
        constexpr uint32_t kStep = 8;
        const SwigluRule rule{p.finish.limit, p.finish.slope, p.finish.offset};
        const float weights[2] = {weight(tile, first_row), weight(tile, first_row + 8)};
#pragma unroll 1
        for (uint32_t i = 0; i < kValues; i += kStep) {
            float now[kStep], ups[kStep];
#pragma unroll
            for (uint32_t r = 0; r < kStep; ++r) now[r] = gate(acc, r), ups[r] = up(acc, r);
            if (p.finish.bf16_between) round_to_bf16(now), round_to_bf16(ups);
#pragma unroll
            for (uint32_t r = 0; r < kStep; ++r) now[r] = swiglu<PtxMath>(now[r], ups[r], rule, weights[r % 4 / 2]);
            if (p.finish.bf16_between) round_to_bf16(now);
#pragma unroll
            for (uint32_t r = 0; r < kValues; ++r) {
                gate(acc, r) = r + kStep < kValues ? gate(acc, r + kStep) : now[r + kStep - kValues];
                if (r + kStep < kValues) up(acc, r) = up(acc, r + kStep);
            }
        }
#pragma unroll
        for (uint32_t r = 0; r < kValues; ++r) values[r] = gate(acc, r);
    }

    __device__ float weight(const Tile& tile, uint32_t row) const {
        const GatedParams& f = p.finish;
        if (!f.weights) return 1.0f;
        // Of the last row for those that the tile lacks: a branch would part the lanes.
        const int64_t of = tile.row + min(row, tile.rows - 1);
        return ptx::load_global(f.weights + stack_offset(p, tile, f.weight_stride) + of * f.weight_row_stride);
    }

    /// Makes the largest of this warp's rows those of both CTAs' columns.
    __device__ void join_neighbour(uint32_t (&largest)[2]) {
        const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize), lane = threadIdx.x % kWarpSize;
        const uint32_t turn = tiles % kLargestTurns, parity = tiles / kLargestTurns % 2;
        const SmemAddr theirs = smem.largest(warp, turn), full = smem.largest_full(warp, turn);
        if (lane == 0) ptx::mbarrier_arrive_expect_tx(full, kWarpRows * 4);
        __syncwarp();
        const uint32_t neighbour = ptx::cluster_rank() ^ 1, row = lane / kRowLanes * 4;
        const SmemAddr to = ptx::map_to_rank(theirs, neighbour), arrive = ptx::map_to_rank(full, neighbour);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            if (lane % kRowLanes == i) ptx::st_async(to + (row + i * 8 * 4), largest[i], arrive);
        __syncwarp();
        while (!ptx::mbarrier_try_wait_cluster(full, parity)) {}
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i)
            largest[i] = max(largest[i], ptx::load_shared_word(theirs + (row + i * 8 * 4)));
        ++tiles;
    }

    /// The bits of the largest finite magnitude of a row in this tile, which four lanes have; they get the same.
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

    /// Stores the thread's part of a row: of the upper one, or of that eight below it.
    template <uint32_t Half>
    __device__ void store(const float (&x)[kValues], uint32_t largest, const Tile& tile) const {
        const GatedParams& f = p.finish;
        const uint32_t lane = threadIdx.x % kRowLanes, row = first_row + Half * 8;
        const float scale = block_scale_of(float_of_bits(largest), f.power_of_two);
        const float inverse = PtxMath::reciprocal(scale);
        const int64_t to = tile.row + row;
        float* const scales = f.scales + stack_offset(p, tile, f.scale_stride) + to * f.scale_row_stride;
        ptx::store_global_if(row < tile.rows && lane == 0 && (!kShares || tile.col % kScaleBlock == 0),
                             scales + tile.col / kScaleBlock * f.scale_col_stride, float_bits(scale));
        uint8_t* const d = static_cast<uint8_t*>(p.d_data) + matrix_offset(p, tile) + to * p.d_row_stride + tile.col;
        constexpr uint32_t kPieces = kCols / 16;  // of sixteen bytes, a word of each lane
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
