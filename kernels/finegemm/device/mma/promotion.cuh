// Promotion: a block product is added to the FP32 sums times its scales. Layer device.
#pragma once

#include <finegemm/gemm/schedule.h>
#include <finegemm/device/mma/block.cuh>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

/// The FP32 sums of one warpgroup's part of the tile, in wgmma's fragment layout, WGMMA after WGMMA.
template <GemmConfig C>
struct Accumulator {
    static constexpr uint32_t kRegisters = C.wgmma_cols() / 2;
    float sum[C.wgmmas()][kRegisters];

    __device__ void clear() {
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas(); ++i)
#pragma unroll
            for (uint32_t r = 0; r < kRegisters; ++r) sum[i][r] = 0;
    }
    /// Copies the sums of the last 64 rows to the first 64.
    __device__ void move_last_to_first() {
#pragma unroll
        for (uint32_t r = 0; r < kRegisters; ++r) sum[0][r] = sum[C.wgmmas() - 1][r];
    }
};

/// Epilogue: what becomes of the sums of a tile.
template <typename E, GemmConfig C>
concept TileEpilogue = requires(E epilogue, Accumulator<C>& acc, const Tile& tile, uint32_t& panel) {
    epilogue.load_source(tile, panel, 1u);  // loads some panels of a source tile, which sums are added to, ahead
    epilogue(acc, tile);
};

/// Scales that a thread needs for one k-block: of two rows of A, and one of B for each segment of columns.
struct Scales {
    float a_upper, a_lower;  // rows `row` and `row + 8` of the fragment
    float b[kMaxSegments];   // 0: there is no such segment
};

template <GemmConfig C>
struct Consumer;

/// Promotion::BlockScale: products of a thread's scales of A and B, with which a block product is multiplied.
struct BlockFactors {
    FG_HD static constexpr bool reads_stage() { return false; }
    float upper[kMaxSegments], lower[kMaxSegments];

    template <GemmConfig C>
    __device__ static BlockFactors of(const Consumer<C>&, const Scales& s, uint32_t /*stage*/, uint32_t /*i*/) {
        BlockFactors f(s);
        if (C.several_segments()) f.pin<wgmma_segments(C)>();  // many products, ready when the block is
        return f;
    }
    __device__ explicit BlockFactors(const Scales& s) {
#pragma unroll
        for (uint32_t i = 0; i < kMaxSegments; ++i) {
            upper[i] = s.a_upper * s.b[i];
            lower[i] = s.a_lower * s.b[i];
        }
    }
    /// Has the factors of the first `Count` segments computed here, not where they are needed.
    template <uint32_t Count>
    __device__ void pin() {
#pragma unroll
        for (uint32_t i = 0; i < Count; ++i) {
            ptx::pin(upper[i]);
            ptx::pin(lower[i]);
        }
    }
};

/// A sum of a block as a float.
__device__ inline float value_of(float x) { return x; }
__device__ inline float value_of(int32_t x) { return ptx::float_of_int(x); }

/// sum += block * factors.
template <GemmConfig C>
__device__ inline void promote(float (&sum)[C.wgmma_cols() / 2], const Block<C>& block, const BlockFactors& f) {
#pragma unroll
    for (uint32_t r = 0; r < C.wgmma_cols() / 2; r += 4) {
        const uint32_t segment = wgmma_segment_of(C, r * 2);
        sum[r] = ptx::fma(value_of(block.product[r]), f.upper[segment], sum[r]);
        sum[r + 1] = ptx::fma(value_of(block.product[r + 1]), f.upper[segment], sum[r + 1]);
        sum[r + 2] = ptx::fma(value_of(block.product[r + 2]), f.lower[segment], sum[r + 2]);
        sum[r + 3] = ptx::fma(value_of(block.product[r + 3]), f.lower[segment], sum[r + 3]);
    }
}

/// Promotion::RowScale: scales of a thread's two rows, and the address of its columns' scales.
struct RowFactors {
    FG_HD static constexpr bool reads_stage() { return true; }
    float upper, lower;
    SmemAddr b;

    template <GemmConfig C>
    __device__ static RowFactors of(const Consumer<C>& consumer, const Scales&, uint32_t stage, uint32_t i) {
        RowFactors f = consumer.row_factors(stage, i);
        ptx::pin(f.b.bits);  // an address that is ready when the block is
        return f;
    }
};

/// The scales of B are read as the promotion goes: all of them would take as many registers as half a block.
template <GemmConfig C>
__device__ inline void promote(float (&sum)[C.tile_n / 2], const Block<C>& block, const RowFactors& f) {
#pragma unroll
    for (uint32_t r = 0; r < C.tile_n / 2; r += 4) {
        const ptx::Float2 b = ptx::load_shared_x2(f.b + r / 4 * 8 * 4);
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            sum[r + i] = ptx::fma(value_of(block.product[r + i]), f.upper * b.part[i], sum[r + i]);
            sum[r + 2 + i] = ptx::fma(value_of(block.product[r + 2 + i]), f.lower * b.part[i], sum[r + 2 + i]);
        }
    }
}

/// Promotion::TensorCore: factors that the tensor cores have left in the block (Block::factor).
struct OwnFactors {
    FG_HD static constexpr bool reads_stage() { return false; }
    template <GemmConfig C>
    __device__ static OwnFactors of(const Consumer<C>&, const Scales&, uint32_t /*stage*/, uint32_t /*i*/) {
        return {};
    }
};
template <GemmConfig C>
__device__ inline void promote(float (&sum)[C.tile_n / 2], const Block<C>& block, OwnFactors) {
#pragma unroll
    for (uint32_t r = 0; r < C.tile_n / 2; ++r) sum[r] = ptx::fma(value_of(block.product[r]), block.factor[r], sum[r]);
}

/// Promotion::Mx: scales of a thread's two rows, one for each product, and the address of its columns' scales.
struct MxFactors {
    FG_HD static constexpr bool reads_stage() { return true; }
    ptx::Float4 upper, lower;
    SmemAddr b;

    template <GemmConfig C>
    __device__ static MxFactors of(const Consumer<C>& consumer, const Scales&, uint32_t stage, uint32_t i) {
        MxFactors f = consumer.mx_factors(stage, i);
        ptx::pin(f.b.bits);  // an address that is ready when the block is
        return f;
    }
};

/// The products of a block are added one after the other; those of an element under one scale of A, which serves all
/// of them, before they are multiplied with it: five instructions in place of eight.
template <GemmConfig C>
__device__ inline void promote(float (&sum)[C.wgmma_cols() / 2], const Block<C>& block, const MxFactors& f) {
    constexpr uint32_t kRegisters = Block<C>::kRegisters;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; r += 4)
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const ptx::Float4 b = ptx::load_shared_x4(f.b + (r / 4 * 8 + i) * kMxScaleBytes);
            float of_upper = 0, of_lower = 0;
#pragma unroll
            for (uint32_t part = 0; part < kMxParts; ++part) {
                const float upper = value_of(block.product[part * kRegisters + r + i]),
                            lower = value_of(block.product[part * kRegisters + r + 2 + i]);
                of_upper = part == 0 ? upper * b.part[0] : ptx::fma(upper, b.part[part], of_upper);
                of_lower = part == 0 ? lower * b.part[0] : ptx::fma(lower, b.part[part], of_lower);
            }
            sum[r + i] = ptx::fma(of_upper, f.upper.part[0], sum[r + i]);
            sum[r + 2 + i] = ptx::fma(of_lower, f.lower.part[0], sum[r + 2 + i]);
        }
}

/// The factors of a kernel's promotion.
template <GemmConfig C>
using FactorsOf = Either<kPlan<C>.promotion == Promotion::BlockScale, BlockFactors,
                         Either<kPlan<C>.promotion == Promotion::RowScale, RowFactors,
                                Either<kPlan<C>.promotion == Promotion::Mx, MxFactors, OwnFactors>>>;

}  // namespace finegemm::device
