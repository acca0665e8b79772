// The columns of the abs form: sums over heads of queries times half their weights, in two residual e4m3 columns each
// (mqa/arithmetic.h). Layer device.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/device/mqa/shared.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Neighbouring columns of D, in a lane: four or eight.
template <uint32_t N>
struct LinearSums {
    static constexpr uint32_t kWords = N / 4;  // of their codes
    float v[N] = {};

    __device__ void add(float w, const uint32_t (&codes)[kWords]) {
#pragma unroll
        for (uint32_t i = 0; i < N; i += 2) {
            const ptx::Float2 two = two_of(codes, i);
            v[i] = ptx::fma(w, two.part[0], v[i]), v[i + 1] = ptx::fma(w, two.part[1], v[i + 1]);
        }
    }
    /// Sixteen bytes of each lane lie together: lanes meet in no bank.
    __device__ void load(SmemAddr of_warp) {
#pragma unroll
        for (uint32_t i = 0; i < N; i += 4) {
            const ptx::Float4 kept = ptx::load_shared_x4(of_warp + (i / 4 * kWarpSize + ptx::lane()) * 16);
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) v[i + j] = kept.part[j];
        }
    }
    __device__ void store(SmemAddr of_warp) const {
#pragma unroll
        for (uint32_t i = 0; i < N; i += 4)
            ptx::store_shared_x4(of_warp + (i / 4 * kWarpSize + ptx::lane()) * 16,
                                 {{v[i], v[i + 1], v[i + 2], v[i + 3]}});
    }
    __device__ uint32_t largest() const {
        uint32_t most = 0;
#pragma unroll
        for (const float x : v) most = max(most, magnitude_bits(x));
        return most;
    }
    /// Residual columns of `inverse` times them: codes of the first ones, and then in their place those of the second.
    __device__ void first_column(float inverse, uint32_t (&codes)[kWords]) {
#pragma unroll
        for (float& x : v) x = ptx::multiply(x, inverse);
        pack(codes);
    }
    __device__ void second_column(uint32_t (&codes)[kWords]) {
#pragma unroll
        for (uint32_t i = 0; i < N; i += 2) {
            const ptx::Float2 two = two_of(codes, i);
            v[i] = ptx::multiply(ptx::add(v[i], -two.part[0]), kResidualSteps);
            v[i + 1] = ptx::multiply(ptx::add(v[i + 1], -two.part[1]), kResidualSteps);
        }
        pack(codes);
    }

private:
    __device__ static ptx::Float2 two_of(const uint32_t (&codes)[kWords], uint32_t i) {
        const uint32_t word = codes[i / 4];
        return ptx::unpack_f16(i % 4 == 0 ? ptx::halves_of_lower_e4m3(word) : ptx::halves_of_upper_e4m3(word));
    }
    __device__ void pack(uint32_t (&codes)[kWords]) const {
#pragma unroll
        for (uint32_t i = 0; i < kWords; ++i) {
            const float* const x = v + 4 * i;
            codes[i] = ptx::pack_e4m3(x[0], x[1]) | static_cast<uint32_t>(ptx::pack_e4m3(x[2], x[3])) << 16;
        }
    }
};

/// The columns of the abs form by steps, as a warp makes them between the tiles that it loads: a step adds kHeads heads
/// of as many queries as there are lanes for, when each has kColumns of D. Sums wait in shared memory meanwhile.
template <MqaConfig C>
struct MqaLinear {
    static constexpr uint32_t kColumns = C.linear_columns(), kWords = kColumns / 4;
    static constexpr uint32_t kLanes = C.dim / kColumns, kAtOnce = kWarpSize / kLanes, kHeads = 64 / kColumns;
    static constexpr uint32_t kStepsEach = C.heads / kHeads;  // of queries that are added up together
    static constexpr uint32_t kSteps = ceil_div(C.queries(), kAtOnce) * kStepsEach;  // of a slot

    /// Step `step` of a slot. The last one for a query makes its columns, and halves its weights if it takes the abs
    /// form.
    __device__ static void add(const MqaShared<C>& smem, SmemAddr sums_of_warp, uint32_t slot, uint32_t step) {
        const uint32_t lane = ptx::lane(), col = lane % kLanes * kColumns;
        const uint32_t query = step / kStepsEach * kAtOnce + lane / kLanes, first = step % kStepsEach * kHeads;
        const bool exists = query < C.queries();
        LinearSums<kColumns> sums;
        if (first > 0) sums.load(sums_of_warp);
        const uint32_t row = exists ? query * C.heads + first : first;
        const SmemAddr weights = smem.weights(slot) + row * 4, rows = smem.queries(slot) + row * C.dim;
        uint32_t codes[kHeads][kWords];  // loaded two heads ahead: sums do not wait for shared memory
        load_codes(rows, 0, col, codes[0]), load_codes(rows, 1, col, codes[1]);
#pragma unroll
        for (uint32_t h = 0; h < kHeads; h += 2) {
            const ptx::Float2 w = ptx::load_shared_x2(weights + h * 4);
#pragma unroll
            for (uint32_t i = h + 2; i < h + 4; ++i)
                if (i < kHeads) load_codes(rows, i, col, codes[i]);
#pragma unroll
            for (uint32_t i = 0; i < 2; ++i) sums.add(ptx::multiply(w.part[i], 0.5f), codes[h + i]);
        }
        if (first + kHeads < C.heads) sums.store(sums_of_warp);
        else make(smem, slot, query, exists, col, sums);
    }

private:
    /// `rows` lie at a multiple of what a swizzle repeats after: eight of them.
    __device__ static SmemAddr place(SmemAddr rows, uint32_t row, uint32_t col) {
        const uint32_t at = row * C.dim, with = at ^ swizzled(at, static_cast<Swizzle>(C.dim));
        return SmemAddr{(rows.bits + col) ^ with} + at;  // constant rows take one instruction
    }
    __device__ static void load_codes(SmemAddr rows, uint32_t row, uint32_t col, uint32_t (&codes)[kWords]) {
        const SmemAddr from = place(rows, row, col);
        if (kWords == 1) {
            codes[0] = float_bits(ptx::load_shared(from));
            return;
        }
        const ptx::Float2 two = ptx::load_shared_x2(from);
        codes[0] = float_bits(two.part[0]), codes[kWords - 1] = float_bits(two.part[1]);
    }
    __device__ static void store_codes(SmemAddr rows, uint32_t row, uint32_t col, const uint32_t (&codes)[kWords]) {
        const SmemAddr to = place(rows, row, col);
        if (kWords == 1) ptx::store_shared(to, float_of_bits(codes[0]));
        else ptx::store_shared_x2(to, float_of_bits(codes[0]), float_of_bits(codes[kWords - 1]));
    }
    __device__ static void make(const MqaShared<C>& smem, uint32_t slot, uint32_t query, bool exists, uint32_t col,
                                LinearSums<kColumns>& sums) {
        uint32_t largest = sums.largest();
#pragma unroll
        for (uint32_t mask = 1; mask < kLanes; mask *= 2) largest = max(largest, ptx::shuffle_xor(largest, mask));
        const bool abs = is_finite_magnitude(largest);
        const uint32_t exponent = abs ? linear_exponent(largest) : 1;
        __syncwarp();  // all lanes have read the weights that are halved below
        if (exists) {
            uint32_t codes[kWords] = {};
#pragma unroll
            for (uint32_t j = 0; j < 2; ++j) {
                if (abs && j == 0) sums.first_column(linear_inverse(exponent), codes);
                if (abs && j == 1) sums.second_column(codes);
#pragma unroll
                for (uint32_t copy = 0; copy < mqa_linear_copies(C); ++copy)
                    store_codes(smem.queries(slot), mqa_linear_column(C, query, copy, j), col, codes);
            }
            if (col == 0) ptx::store_shared(smem.step(slot, query), abs ? linear_step(exponent) : 0.0f);
            for (uint32_t h = col / kColumns; abs && h < C.heads; h += kLanes) {
                const SmemAddr weight = smem.weights(slot) + (query * C.heads + h) * 4;
                ptx::store_shared(weight, ptx::multiply(ptx::load_shared(weight), 0.5f));
            }
        }
        ptx::fence_proxy_async_shared();  // tensor cores read the columns
    }
};

}  // namespace finegemm::device
