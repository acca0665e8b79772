// The kernel that adds up the rows of a token's choices, each times its weight. Layer device.
#pragma once

#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/routing/few.cuh>
#include <finegemm/device/routing/rows.cuh>

namespace finegemm::device {

/// Rows of some of a token's choices, and their weights; zeros where there are no more.
struct WeightedRows {
    static constexpr uint32_t kVectors = CombineConfig::vectors(), kAtOnce = CombineConfig::at_once();
    ptx::Words4 vectors[kAtOnce][kVectors];
    float weights[kAtOnce];

    /// Takes the first choices out of `rows`.
    __device__ void load(const CombineParams& p, RowsOfToken& rows, float weight, uint32_t byte) {
#pragma unroll
        for (uint32_t s = 0; s < kAtOnce; ++s) {
            const bool exists = rows.wanted != 0;
            const uint32_t choice = exists ? ptx::lowest_bit(rows.wanted) : 0;
            const uint32_t row = ptx::value_of(rows.row, choice);
            weights[s] = exists ? float_of_bits(ptx::value_of(float_bits(weight), choice)) : 0.0f;
            rows.wanted &= rows.wanted - 1;
            const uint8_t* const from = p.y + p.y_rows.offset(exists ? row : 0);
#pragma unroll
            for (uint32_t u = 0; u < kVectors; ++u) {
                const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
                vectors[s][u] = ptx::load_global_x4_if(exists && at < p.row_bytes, from + at);
            }
        }
    }
    /// One after the other: the order of choices is that of the sum.
    __device__ void add_to(float (&sums)[kVectors][8]) const {
#pragma unroll
        for (uint32_t s = 0; s < kAtOnce; ++s)
#pragma unroll
            for (uint32_t u = 0; u < kVectors; ++u)
#pragma unroll
                for (uint32_t i = 0; i < 8; ++i) {
                    const uint32_t word = vectors[s][u].w[i / 2];
                    const float y = float_of_bits(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
                    sums[u][i] = ptx::add(sums[u][i], ptx::multiply(weights[s], y));
                }
    }
};

/// A token without rows becomes zero. A sum is never -0, so that nothing changes where zeros are added.
template <CombineConfig C>
__device__ void combine(const CombineParams& p) {
    ptx::grid_launch_dependents();
    const uint32_t* few = nullptr;
    if (C.routes) few = route_few<C.threads(), false>(p.route).rows;
    ptx::grid_dependency_wait();
    for_chunks(C, p, [&](uint32_t token, uint32_t byte) {
        RowsOfToken rows = C.routes ? RowsOfToken::load(few, p.chosen.k, p.y_rows, token)
                                    : RowsOfToken::load(p.chosen, p.y_rows, token);
        const bool weighs = p.weights && ptx::lane() < p.chosen.k;
        const float given = float_of_bits(
            ptx::load_global_if(weighs, p.weights + token * p.weight_row_stride + (weighs ? ptx::lane() : 0)));
        const float weight = p.weights ? given : 1.0f;
        float sums[C.vectors()][8] = {};
        do {
            WeightedRows some;
            some.load(p, rows, weight, byte);
            some.add_to(sums);
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
