// Scales that come through registers: split for the tensor cores, or those of MX. Layer device.
#pragma once

#include <finegemm/gemm/split_scale.h>
#include <finegemm/device/load/numbered_rows.cuh>
#include <finegemm/device/load/scales_vector.cuh>

namespace finegemm::device {

/// Stores a SplitScale, or an MxScale, into its row of a stage.
template <typename Parts>
__device__ inline void store_row(SmemAddr to, uint32_t row, const Parts& parts) {
    static_assert(sizeof(Parts) == kSplitScaleBytes);
    ptx::store_shared_words_x4(to + row * kSplitScaleBytes,
                               {parts.word[0], parts.word[1], parts.word[2], parts.word[3]});
}

/// Says that the warp has stored all parts of a stage, which wgmma reads.
template <GemmConfig C>
__device__ inline void arrive_for_parts(const Shared<C>& smem, uint32_t stage) {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    arrive_for_copies(smem, stage);
}

/// The scales of one k-block for `Rows` rows of a tile, in registers: lane i has those of the rows i, i + 32, ... Those
/// of several k-blocks, where there is room for them.
template <uint32_t Rows, uint32_t Blocks = 1>
struct RowLoads {
    static constexpr uint32_t kEach = ceil_div(Rows, kWarpSize);
    uint32_t lane, existing;
    const float* from;
    int64_t step;  // from one of this lane's rows to its next
    float scale[Blocks][kEach];

    __device__ RowLoads(const ScaleView& s, const float* first, uint32_t rows)
        : lane(threadIdx.x % kWarpSize),
          existing(rows),
          from(first + lane * s.mn_stride),
          step(kWarpSize * s.mn_stride) {}
    /// Rows past the end have 0.
    __device__ void load() {
        if (step == kWarpSize) load(kWarpSize);  // neighbours: all from one address
        else load(step);
    }
    template <typename Step>
    __device__ void load(Step step) {
        load(0, from, step);
    }
    /// Loads those of a block that is so many floats further on to the place of block `block`.
    __device__ void load(uint32_t block, int64_t further) { load(block, from + further, step); }
    template <typename PartsOf>
    __device__ void store(SmemAddr to, const PartsOf& parts_of, uint32_t block = 0) const {
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i)
            if (const uint32_t row = i * kWarpSize + lane; row < Rows) store_row(to, row, parts_of(scale[block][i]));
    }
    __device__ void advance(const ScaleView& s, uint32_t k_blocks) { from += k_blocks * s.k_stride; }

private:
    template <typename Step>
    __device__ void load(uint32_t block, const float* first, Step step) {
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i)
            scale[block][i] = i * kWarpSize + lane < existing ? ptx::load_global(first + i * step) : 0;
    }
};

/// The scales of one k-block, split for the tensor cores, as a scale warp loads and stores them.
template <GemmConfig C, uint32_t Blocks = 1>
struct SplitScaleLoads {
    RowLoads<C.tile_m, Blocks> a;
    RowLoads<C.tile_n, Blocks> b;

    __device__ SplitScaleLoads(const Params<C>& p, const Tile& tile, uint32_t kb)
        : a(p.sfa, scales_of_a(p, tile) + kb * p.sfa.k_stride, tile.rows),
          b(p.sfb, scales_of_b(p, tile) + kb * p.sfb.k_stride + tile.col * p.sfb.mn_stride,
            existing_rows(tile.col, C.tile_n, p.n)) {}
    /// Loads into registers, before the stage is empty.
    __device__ void load() {
        a.load();
        b.load();
    }
    __device__ void fill(const Shared<C>& smem, uint32_t stage) const {
        a.store(smem.sfa(stage), split_scale_of_a);
        b.store(smem.sfb(stage), split_scale_of_b);
        arrive_for_parts(smem, stage);
    }
    __device__ void advance(const Params<C>& p, uint32_t k_blocks = 1) {
        a.advance(p.sfa, k_blocks);
        b.advance(p.sfb, k_blocks);
    }
};

/// K-blocks whose MX scales a scale warp has in registers.
template <GemmConfig C>
inline constexpr uint32_t kMxBlocks =
    C.swaps_mx ? 12 / (ceil_div(C.tile_m, kWarpSize) + ceil_div(C.tile_n, kWarpSize)) : 1;

/// MX scales of one k-block: those of B, and those of A, which may be one for the block.
template <GemmConfig C>
struct MxScaleLoads : SplitScaleLoads<C, kMxBlocks<C>> {
    using SplitScaleLoads<C, kMxBlocks<C>>::SplitScaleLoads;
    using SplitScaleLoads<C, kMxBlocks<C>>::load;
    /// Loads those of the block that is `k_blocks` further on to the place of block `block`.
    __device__ void load(const Params<C>& p, uint32_t block, uint32_t k_blocks) {
        this->a.load(block, k_blocks * p.sfa.k_stride);
        this->b.load(block, k_blocks * p.sfb.k_stride);
    }
    __device__ void fill(const Shared<C>& smem, uint32_t stage, uint32_t block = 0) const {
        this->a.store(smem.sfa(stage), C.a.scaling == Scaling::Mx ? mx_scale_of_word : mx_scale_of_float, block);
        this->b.store(smem.sfb(stage), mx_scale_of_word, block);
        if (kPlan<C>.promotion == Promotion::MxProducts) ptx::fence_proxy_async_shared();  // wgmma reads those of A
        __syncwarp();  // one lane's arrivals speak for the whole warp
        arrive_for_copies(smem, stage);
    }
};

__device__ inline void load_vector(ptx::Float2& to, const float* from) { to = ptx::load_global_x2(from); }
__device__ inline void load_vector(ptx::Float4& to, const float* from) { to = ptx::load_global_x4(from); }

/// Scales of four (or two) k-blocks for the rows of both operands; split for the tensor cores when they are stored.
template <GemmConfig C>
struct SplitScaleVector {
    static constexpr uint32_t kBlocks = kPlan<C>.scale_vector_blocks;
    using Blocks = Either<kBlocks == 2, ptx::Float2, ptx::Float4>;
    Blocks a[ceil_div(C.tile_m, kWarpSize)], b[ceil_div(C.tile_n, kWarpSize)];

    template <uint32_t Each>
    __device__ static void load(Blocks (&to)[Each], const ScaleView& s, const float* data, uint32_t first_row,
                                uint32_t rows, uint32_t kb) {
        const uint32_t lane = threadIdx.x % kWarpSize;
        const float* from = data + (first_row + lane) * s.mn_stride + kb;
#pragma unroll
        for (uint32_t i = 0; i < Each; ++i, from += kWarpSize * s.mn_stride)
            if (i * kWarpSize + lane < rows) load_vector(to[i], from);
    }
    __device__ void load(const Params<C>& p, const Tile& tile, uint32_t kb) {
        // B's first: with 136 columns ptxas else has elements and the sums that they are added to in one bank.
        load(b, p.sfb, scales_of_b(p, tile), tile.col, existing_rows(tile.col, C.tile_n, p.n), kb);
        load(a, p.sfa, scale_matrix_of_a(p, tile), tile.row, tile.rows, kb);
    }
    __device__ void fill(uint32_t j, const Shared<C>& smem, uint32_t stage) const {
        const uint32_t lane = threadIdx.x % kWarpSize;
#pragma unroll
        for (uint32_t i = 0; i < C.tile_m / kWarpSize; ++i)
            store_row(smem.sfa(stage), i * kWarpSize + lane, split_scale_of_a(a[i].part[j]));
#pragma unroll
        for (uint32_t i = 0; i < ceil_div(C.tile_n, kWarpSize); ++i)
            if (const uint32_t row = i * kWarpSize + lane; row < C.tile_n)
                store_row(smem.sfb(stage), row, split_scale_of_b(b[i].part[j]));
        arrive_for_parts(smem, stage);
    }
};

/// The scales of one k-block, from any layout, on the path that the plan names.
template <GemmConfig C>
using ScalesOf =
    Either<C.mx(), MxScaleLoads<C>, Either<kPlan<C>.tensor_core_scales(), SplitScaleLoads<C>, ScaleCopies<C>>>;

/// Vectors of scales, on the path that the plan names.
template <GemmConfig C>
using VectorOf = Either<kPlan<C>.tensor_core_scales(), SplitScaleVector<C>, ScaleVector<C>>;

/// The first round of scales for groups of rows: none need wait for an empty stage.
template <GemmConfig C, typename Scales = ScalesOf<C>>
struct FirstCopies {
    static_assert(ScaleLoader<Scales, C>);
    __device__ static void load(const Params<C>& p, const Shared<C>& smem, const Tile& tile, uint32_t scale_warp) {
        Scales scales(p, tile, 0);
        const uint32_t blocks = first_round({0, p.k_blocks}, C.stages).size();
#pragma unroll 1
        for (uint32_t stage = 0; stage < blocks; ++stage) {
            if (stage % kScaleWarps == scale_warp) {
                scales.load();
                scales.fill(smem, stage);
            }
            scales.advance(p);
        }
    }
};
/// FirstCopies of kernels that may find rows of A by numbers.
template <GemmConfig C>
struct FirstCopiesOfEither {
    __device__ static void load(const Params<C>& p, const Shared<C>& smem, const Tile& tile, uint32_t scale_warp) {
        if (numbers_of_a(static_cast<const KernelParams<C>&>(p)))
            FirstCopies<C, NumberedRowScales<C>>::load(p, smem, tile, scale_warp);
        else FirstCopies<C>::load(p, smem, tile, scale_warp);
    }
};
/// The first vector of a CTA that has groups of rows, which fills the first stages.
template <GemmConfig C>
struct FirstVector {
    using Vector = VectorOf<C>;
    static_assert(Vector::kBlocks <= C.stages);
    __device__ static void load(const Params<C>& p, const Shared<C>& smem, const Tile& tile, uint32_t scale_warp) {
        if (scale_warp > 0) return;
        Vector vector;
        vector.load(p, tile, 0);
#pragma unroll
        for (uint32_t j = 0; j < Vector::kBlocks; ++j) vector.fill(j, smem, j);
    }
};
/// MX scales of few rows are all loaded when roles have parted.
struct NoFirstScales {
    template <typename Params, typename Smem>
    __device__ static void load(const Params&, const Smem&, const Tile&, uint32_t /*scale_warp*/) {}
};
template <GemmConfig C>
using FirstScales = Either<C.swaps_mx, NoFirstScales,
                           Either<C.scales == ScaleLayout::Rows, FirstVector<C>,
                                  Either<finds_rows(C.finish), FirstCopiesOfEither<C>, FirstCopies<C>>>>;

}  // namespace finegemm::device
