// The columns of the abs form: sums over heads of queries times half their weights, in two residual e4m3 columns each
// (mqa/arithmetic.h). Layer device.
#pragma once

#include <finegemm/core/tma_box.h>
#include <finegemm/device/mqa/shared.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Four neighbouring columns of D, in a lane.
struct FourSums {
    float v[4] = {};

    __device__ void add(float w, uint32_t codes) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i += 2) {
            const ptx::Float2 two = ptx::unpack_f16(ptx::halves_of_e4m3(static_cast<uint16_t>(codes >> 8 * i)));
            v[i] = ptx::fma(w, two.part[0], v[i]), v[i + 1] = ptx::fma(w, two.part[1], v[i + 1]);
        }
    }
    __device__ void load(SmemAddr from) {
        const ptx::Float4 kept = ptx::load_shared_x4(from);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) v[i] = kept.part[i];
    }
    __device__ void store(SmemAddr to) const { ptx::store_shared_x4(to, {{v[0], v[1], v[2], v[3]}}); }
    __device__ uint32_t largest() const {
        uint32_t most = 0;
#pragma unroll
        for (const float x : v) most = max(most, magnitude_bits(x));
        return most;
    }
    /// Residual columns of `inverse` times them: codes of the first ones and of the second.
    __device__ void residuals(float inverse, uint32_t (&codes)[2]) const {
        float scaled[4], rest[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) scaled[i] = ptx::multiply(v[i], inverse);
        codes[0] = pack(scaled);
#pragma unroll
        for (uint32_t i = 0; i < 4; i += 2) {
            const ptx::Float2 two = ptx::unpack_f16(ptx::halves_of_e4m3(static_cast<uint16_t>(codes[0] >> 8 * i)));
            rest[i] = ptx::multiply(ptx::add(scaled[i], -two.part[0]), kResidualSteps);
            rest[i + 1] = ptx::multiply(ptx::add(scaled[i + 1], -two.part[1]), kResidualSteps);
        }
        codes[1] = pack(rest);
    }

private:
    __device__ static uint32_t pack(const float (&x)[4]) {
        return ptx::pack_e4m3(x[0], x[1]) | static_cast<uint32_t>(ptx::pack_e4m3(x[2], x[3])) << 16;
    }
};

/// The columns of the abs form by steps, as a warp makes them between the tiles that it loads: a step adds eight heads
/// of as many queries as there are lanes for, when each has four columns of D. Sums wait in shared memory meanwhile.
template <MqaConfig C>
struct MqaLinear {
    static constexpr uint32_t kLanes = C.dim / 4, kAtOnce = kWarpSize / kLanes, kHeads = 8;
    static constexpr uint32_t kStepsEach = C.heads / kHeads;  // of queries that are added up together
    static constexpr uint32_t kSteps = ceil_div(C.queries(), kAtOnce) * kStepsEach;  // of a slot

    /// Step `step` of a slot, whose first `queries` exist. The last one for a query makes its columns, and halves its
    /// weights if it takes the abs form.
    __device__ static void add(const MqaShared<C>& smem, SmemAddr sums_of_warp, uint32_t slot, uint32_t queries,
                               uint32_t step) {
        const uint32_t lane = ptx::lane(), col = lane % kLanes * 4;
        const uint32_t query = step / kStepsEach * kAtOnce + lane / kLanes, first = step % kStepsEach * kHeads;
        if (step / kStepsEach * kAtOnce >= queries) return;
        const bool exists = query < queries;
        const SmemAddr kept = sums_of_warp + lane * 16;
        FourSums sums;
        if (first > 0) sums.load(kept);
#pragma unroll 1
        for (uint32_t h = first; h < first + kHeads; h += 4) {
            const uint32_t row = exists ? query * C.heads + h : h;
            const ptx::Float4 w = ptx::load_shared_x4(smem.weights(slot) + row * 4);
            uint32_t codes[4];  // loaded first: one wait for shared memory rather than four
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) codes[i] = float_bits(ptx::load_shared(place(smem, slot, row + i, col)));
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) sums.add(ptx::multiply(w.part[i], 0.5f), codes[i]);
        }
        if (first + kHeads < C.heads) sums.store(kept);
        else make(smem, slot, query, exists, col, sums);
    }

private:
    /// Slots lie at multiples of what a swizzle repeats after.
    __device__ static SmemAddr place(const MqaShared<C>& smem, uint32_t slot, uint32_t row, uint32_t col) {
        return SmemAddr{swizzled(smem.queries(slot).bits + row * C.dim + col, static_cast<Swizzle>(C.dim))};
    }
    __device__ static void make(const MqaShared<C>& smem, uint32_t slot, uint32_t query, bool exists, uint32_t col,
                                const FourSums& sums) {
        uint32_t largest = sums.largest();
#pragma unroll
        for (uint32_t mask = 1; mask < kLanes; mask *= 2) largest = max(largest, ptx::shuffle_xor(largest, mask));
        const bool abs = is_finite_magnitude(largest);
        const uint32_t exponent = abs ? linear_exponent(largest) : 1;
        uint32_t codes[2] = {0, 0};
        if (abs) sums.residuals(linear_inverse(exponent), codes);
        __syncwarp();  // all lanes have read the weights that are halved below
        if (exists) {
#pragma unroll
            for (uint32_t copy = 0; copy < mqa_linear_copies(C); ++copy)
#pragma unroll
                for (uint32_t j = 0; j < 2; ++j)
                    ptx::store_shared(place(smem, slot, mqa_linear_column(C, query, copy, j), col),
                                      float_of_bits(codes[j]));
            if (col == 0) ptx::store_shared(smem.step(slot, query), abs ? linear_step(exponent) : 0.0f);
            for (uint32_t h = col / 4; abs && h < C.heads; h += kLanes) {
                const SmemAddr weight = smem.weights(slot) + (query * C.heads + h) * 4;
                ptx::store_shared(weight, ptx::multiply(ptx::load_shared(weight), 0.5f));
            }
        }
        ptx::fence_proxy_async_shared();  // tensor cores read the columns
    }
};

}  // namespace finegemm::device
