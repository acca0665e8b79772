// The kernels that put a token's row where its experts have theirs: it is read, and quantised, once. Layer device.
#pragma once

#include <finegemm/device/coming_bytes.cuh>
#include <finegemm/device/either.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/quantize.cuh>
#include <finegemm/device/routing/few.cuh>
#include <finegemm/device/routing/rows.cuh>
#include <finegemm/device/swiglu.cuh>

namespace finegemm::device {

/// 16 bytes of each lane, several times: what a warp has of a row.
struct ChunkCopy {
    static constexpr uint32_t kVectors = PermuteConfig::chunk_bytes() / (kWarpSize * 16);
    static constexpr uint32_t kBlocks = PermuteConfig::chunk_bytes() / kScaleBlock;  // of codes
    ptx::Words4 vectors[kVectors];
    float scale;  // of the lane's block

    __device__ void load(const PermuteParams& p, uint32_t token, uint32_t byte) {
        const uint8_t* const row = p.x + token * p.x_row_stride;
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u) {
            const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
            vectors[u] = ptx::load_global_x4_if(at < p.row_bytes, row + at);
        }
        const uint32_t block = byte / kScaleBlock + ptx::lane();
        const bool exists = p.x_scales && ptx::lane() < kBlocks && block < p.scale_blocks;
        scale = float_of_bits(
            ptx::load_global_if(exists, p.x_scales + token * p.x_scale_row_stride + block * p.x_scale_col_stride));
    }
    __device__ void store(const PermuteParams& p, uint8_t* row, float* scales, uint32_t byte) const {
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u) {
            const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
            ptx::store_global_x4_if(at < p.row_bytes, row + at, vectors[u]);
        }
        const uint32_t block = byte / kScaleBlock + ptx::lane();
        ptx::store_global_if(p.x_scales && ptx::lane() < kBlocks && block < p.scale_blocks,
                             scales + block * p.scale_col_stride, float_bits(scale));
    }
};

/// What a warp has of a row of bf16 that becomes e4m3, by the rule of quantize_rows.
struct ChunkCodes {
    static constexpr QuantizeConfig kQuantize{QuantizeInput::BF16};
    static constexpr uint32_t kVectors = PermuteConfig::chunk_bytes() / (kWarpSize * 16);
    static constexpr uint32_t kBlocks = PermuteConfig::chunk_bytes() / 2 / kScaleBlock;
    static constexpr uint32_t kBlocksAcross = kWarpSize / kQuantize.lanes();  // of a vector of all lanes
    Values<kQuantize>::Codes codes[kVectors];
    float scale;  // of the lane's block

    __device__ void load(const PermuteParams& p, uint32_t token, uint32_t byte) {
        const uint8_t* const row = p.x + token * p.x_row_stride;
        Values<kQuantize> values[kVectors];
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u) {
            const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
            values[u].words = ptx::load_global_x4_if(at < p.row_bytes, row + at);
        }
        uint32_t most = 0;
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u) {
            const uint32_t of_block = largest_of(values[u].largest(), kQuantize.lanes());
            const uint32_t mine = ptx::value_of(of_block, ptx::lane() % kBlocksAcross * kQuantize.lanes());
            if (ptx::lane() / kBlocksAcross == u) most = mine;
        }
        scale = block_scale_of(float_of_bits(most), p.power_of_two);
        const uint32_t inverse = float_bits(PtxMath::reciprocal(scale));
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u) {
            const uint32_t block = u * kBlocksAcross + ptx::lane() / kQuantize.lanes();
            codes[u] = values[u].codes(float_of_bits(ptx::value_of(inverse, block)));
        }
    }
    __device__ void store(const PermuteParams& p, uint8_t* row, float* scales, uint32_t byte) const {
#pragma unroll
        for (uint32_t u = 0; u < kVectors; ++u) {
            const uint32_t at = byte + (u * kWarpSize + ptx::lane()) * 16;
            ptx::store_global_x2_if(at < p.row_bytes, row + at / 2, codes[u].w[0], codes[u].w[1]);
        }
        const uint32_t block = byte / 2 / kScaleBlock + ptx::lane();
        ptx::store_global_if(ptx::lane() < kBlocks && block < p.scale_blocks, scales + block * p.scale_col_stride,
                             float_bits(scale));
    }
};

/// Stores the weights of a token's choices to their rows.
__device__ inline void store_weights(const PermuteParams& p, const RowsOfToken& rows, uint32_t token) {
    const uint32_t lane = ptx::lane();
    const bool wanted = (rows.wanted >> lane & 1) != 0;
    const uint32_t weight = ptx::load_global_if(wanted, p.weights + token * p.weight_row_stride + (wanted ? lane : 0));
    ptx::store_global_if(wanted, p.weights_of_rows + (wanted ? rows.row : 0), weight);
}

/// What a warp does of a token: a chunk of its row, for all its choices, or for one.
template <PermuteConfig C>
struct PartOfToken {
    uint32_t byte, choices;

    __device__ static PartOfToken of(const PermuteParams& p, uint32_t part) {
        if (!C.routes) return {part * C.chunk_bytes(), ~0u};
        const uint32_t chunk = p.route.by_k.quotient(part);
        return {chunk * C.chunk_bytes(), 1u << (part - chunk * p.route.by_k.divisor)};
    }
};

/// Brings the first chunk of this warp to L2, while rows are looked for, here or by the kernel before.
template <PermuteConfig C>
__device__ void prefetch_first_chunk(const PermuteParams& p) {
    constexpr uint32_t kLine = 128;
    const uint32_t task = blockIdx.x * C.warps() + threadIdx.x / kWarpSize, token = p.by_parts.quotient(task);
    const uint32_t part = task - token * p.by_parts.divisor,
                   byte = PartOfToken<C>::of(p, part).byte + ptx::lane() * kLine;
    if (task < p.tasks && ptx::lane() < C.chunk_bytes() / kLine && byte < p.row_bytes)
        ptx::prefetch_global(p.x + token * p.x_row_stride + byte);
}

/// Stores zeros for a token that no expert here has: its chunk of bf16, where elements of x have `Bytes`.
template <uint32_t Bytes>
__device__ void clear_sum(const PermuteParams& p, uint32_t token, uint32_t byte) {
    constexpr uint32_t kWider = 2 / Bytes, kVectors = kWider * PermuteConfig::chunk_bytes() / (kWarpSize * 16);
    uint8_t* const row = p.sums + token * p.sum_row_stride;
#pragma unroll
    for (uint32_t u = 0; u < kVectors; ++u) {
        const uint32_t at = byte * kWider + (u * kWarpSize + ptx::lane()) * 16;
        ptx::store_global_x4_if(at < p.row_bytes * kWider, row + at, ptx::Words4{});
    }
}

/// Tokens that no expert here has are not read, rows that no token has not written.
template <PermuteConfig C>
__device__ void permute_rows(const PermuteParams& p) {
    const bool counted = C.routes && p.route.choices <= kCountedChoices;
    if (!counted) ptx::grid_launch_dependents();
    prefetch_first_chunk<C>(p);
    ask_for(p.coming);
    ptx::grid_dependency_wait();
    // The next kernels count choices and load weights before they wait for this one: all before it have to have ended.
    if (counted) ptx::grid_launch_dependents();
    const uint32_t* few = nullptr;
    if (C.routes) few = route_few<C.threads(), true>(p.route).rows;
    for_parts(C, p, [&](uint32_t token, uint32_t part) {
        const auto [byte, choices] = PartOfToken<C>::of(p, part);
        RowsOfToken rows = C.routes ? RowsOfToken::load(few, p.chosen.k, p.q_rows, token)
                                    : RowsOfToken::load(p.chosen, p.q_rows, token);
        const bool has_rows = rows.wanted != 0;
        rows.wanted &= choices;
        if (rows.wanted == 0) {
            if (!has_rows && p.sums) clear_sum<C.quantizes ? 2 : 1>(p, token, byte);
            return;
        }
        if (p.weights_of_rows && byte == 0) store_weights(p, rows, token);
        Either<C.quantizes, ChunkCodes, ChunkCopy> chunk;
        chunk.load(p, token, byte);
        for (uint32_t wanted = rows.wanted; wanted != 0; wanted &= wanted - 1) {
            const uint32_t row = ptx::value_of(rows.row, ptx::lowest_bit(wanted));
            chunk.store(p, p.q + p.q_rows.offset(row), p.scales + p.scale_rows.offset(row), byte);
        }
    });
}

}  // namespace finegemm::device
