// The kernel that adds up the rows of a token's choices, each times its weight. Layer device.
#pragma once

#include <finegemm/device/expert_bias.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/routing/few.cuh>
#include <finegemm/device/routing/rows.cuh>

namespace finegemm::device {

/// A choice of a token, a lane each.
struct WeightedChoice {
    float weight, bias_weight;
    uint32_t expert;
};

/// A weight of each choice; ones where there are none.
__device__ inline float load_weight(const CombineParams& p, const float* weights, int64_t row_stride, uint32_t token) {
    const bool weighs = weights && ptx::lane() < p.chosen.k;
    const float given =
        float_of_bits(ptx::load_global_if(weighs, weights + token * row_stride + (weighs ? ptx::lane() : 0)));
    return weights ? given : 1.0f;
}

/// Rows of some of a token's choices, and their weights; zeros where there are no more.
template <CombineConfig C>
struct WeightedRows {
    static constexpr uint32_t kVectors = C.vectors(), kAtOnce = C.at_once();
    ptx::Words4 vectors[kAtOnce][kVectors];
    float weights[kAtOnce], bias_weights[kAtOnce];
    BiasVector biases[kAtOnce][kVectors];

    /// Takes the first choices out of `rows`.
    __device__ void load(const CombineParams& p, RowsOfToken& rows, const WeightedChoice& of, uint32_t byte) {
#pragma unroll
        for (uint32_t s = 0; s < kAtOnce; ++s) {
            const bool exists = rows.wanted != 0;
            const uint32_t choice = exists ? ptx::lowest_bit(rows.wanted) : 0;
            const uint32_t row = ptx::value_of(rows.row, choice);
            weights[s] = exists ? float_of_bits(ptx::value_of(float_bits(of.weight), choice)) : 0.0f;
            rows.wanted &= rows.wanted - 1;
            const uint8_t* const from = p.y + p.y_rows.offset(exists ? row : 0);
#pragma unroll
            for (uint32_t u = 0; u < kVectors; ++u) {
                const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
                vectors[s][u] = ptx::load_global_x4_if(exists && at < p.row_bytes, from + at);
            }
            if (!C.biased) continue;
            bias_weights[s] = exists ? float_of_bits(ptx::value_of(float_bits(of.bias_weight), choice)) : 0.0f;
            const uint32_t expert = ptx::value_of(of.expert, choice);
#pragma unroll
            for (uint32_t u = 0; u < kVectors; ++u) {
                const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
                biases[s][u] = BiasVector::load(exists && at < p.row_bytes, p.biases, expert, at / 2);
            }
        }
    }
    /// One after the other: the order of choices is that of the sum.
    __device__ void add_to(float (&sums)[kVectors][8], const CombineParams& p) const {
#pragma unroll
        for (uint32_t s = 0; s < kAtOnce; ++s)
#pragma unroll
            for (uint32_t u = 0; u < kVectors; ++u)
#pragma unroll
                for (uint32_t i = 0; i < 8; ++i) {
                    const uint32_t word = vectors[s][u].w[i / 2];
                    float y = float_of_bits(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
                    if (C.biased) y = ptx::add(y, ptx::multiply(bias_weights[s], biases[s][u].at(p.biases, i)));
                    sums[u][i] = ptx::add(sums[u][i], ptx::multiply(weights[s], y));
                }
    }
};

/// A token without rows becomes zero. A sum is never -0, so that nothing changes where zeros are added.
template <CombineConfig C>
__device__ void combine(const CombineParams& p) {
    ptx::grid_launch_dependents();
    const uint32_t* few = nullptr;
    const bool routes = C.routes || (C.biased && p.counts);
    if (routes) few = route_few<C.threads(), false>(p.route).rows;
    ptx::grid_dependency_wait();
    for_parts(C, p, [&](uint32_t token, uint32_t part) {
        const uint32_t byte = part * C.chunk_bytes();
        RowsOfToken rows =
            routes ? RowsOfToken::load(few, p.chosen.k, p.y_rows, token) : RowsOfToken::load(p.chosen, p.y_rows, token);
        WeightedChoice of{load_weight(p, p.weights, p.weight_row_stride, token), 1.0f, 0};
        if (C.biased) {
            of.bias_weight = load_weight(p, p.bias_weights, p.bias_weight_row_stride, token);
            of.expert = load_choice(p.route, token * p.chosen.k + ptx::lane(), ptx::lane() < p.chosen.k).expert;
        }
        float sums[C.vectors()][8] = {};
        do {
            WeightedRows<C> some;
            some.load(p, rows, of, byte);
            some.add_to(sums, p);
        } while (rows.wanted != 0);
#pragma unroll
        for (uint32_t u = 0; u < C.vectors(); ++u) {
            const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
            const float (&s)[8] = sums[u];
            ptx::store_global_x4_if(at < p.row_bytes, p.out + token * p.out_row_stride + at,
                                    ptx::Words4{{ptx::pack_bf16(s[0], s[1]), ptx::pack_bf16(s[2], s[3]),
                                                 ptx::pack_bf16(s[4], s[5]), ptx::pack_bf16(s[6], s[7])}});
        }
    });
}

}  // namespace finegemm::device
