// Producers of scales, by asynchronous copies or through registers. Layer device.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/gemm/params.h>
#include <finegemm/gemm/scale_copies.h>
#include <finegemm/gemm/schedule.h>
#include <finegemm/gemm/split_scale.h>
#include <finegemm/device/barriers.cuh>
#include <finegemm/device/grouped_m_scheduler.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/shared.cuh>
#include <finegemm/device/zero.cuh>

namespace finegemm::device {

/// Address of the scale of a tile's first row, and of the scales of its B.
template <GemmConfig C>
__device__ inline const float* scales_of_a(const Params<C>& p, const Tile& tile) {
    const float* const first = p.sfa.data + tile.row * p.sfa.mn_stride;
    if constexpr (C.row_groups()) return first + matrix_of(p, tile) * p.sfa_stride;
    else return first;
}
template <GemmConfig C>
__device__ inline const float* scales_of_b(const Params<C>& p, const Tile& tile) {
    if constexpr (C.row_groups()) return p.sfb.data + tile.group * p.sfb_stride;
    else return p.sfb.data;
}

/// Are scales of neighbouring rows neighbours in memory, equally far from a multiple of 16 bytes in every k-block?
__device__ inline bool neighbours(const ScaleView& s) { return s.mn_stride == 1 && s.k_stride % kScalePiece == 0; }

/// Floats from a stage's first one to the scale of the tile's first row; published to the math warps.
template <GemmConfig C>
__device__ inline uint32_t shift_of(const Params<C>& p, const Tile& tile) {
    return C.scales == ScaleLayout::Any && neighbours(p.sfa) ? scale_shift(scales_of_a<C>(p, tile)) : 0;
}

template <bool First, typename A, typename B>
struct EitherOf {
    using Type = A;
};
template <typename A, typename B>
struct EitherOf<false, A, B> {
    using Type = B;
};
/// A if `First`, else B: NVRTC has no <type_traits>.
template <bool First, typename A, typename B>
using Either = typename EitherOf<First, A, B>::Type;

/// The scales of one k-block for `Rows` rows of a tile, as a lane of a scale warp copies them: asynchronously, from any
/// layout. Addresses grow by additions, and rows that are neighbours in memory are copied four at a time: if `Shifts`
/// wherever they begin, as those of groups do, else where that is a multiple of 16 bytes.
template <uint32_t Rows, bool Shifts>
struct RowCopies {
    uint32_t lane;
    ScaleCopyPlan<Rows> plan;
    bool pieces;
    const float *from, *single;
    int64_t step;  // from one of this lane's rows to its next

    __device__ RowCopies(const ScaleView& s, const float* first, uint32_t existing)
        : lane(threadIdx.x % kWarpSize), plan{existing, scale_shift(first)} {
        pieces = neighbours(s) && (Shifts || plan.shift == 0);
        if (!Shifts || !pieces) plan.shift = 0;
        from = pieces ? first - plan.shift + kScalePiece * lane : first + lane * s.mn_stride;
        single = first + plan.single(lane);
        step = kWarpSize * s.mn_stride;
    }

    /// Rows past the end keep what the stage had: their products are never stored.
    __device__ void issue(SmemAddr to) const {
        if (pieces) {
#pragma unroll
            for (uint32_t i = 0; i < plan.kPieces; ++i) {
                const uint32_t offset = plan.offset(i, lane), count = plan.count(offset);
                if (count > 0) ptx::copy_async_x4(to + offset * 4, from + kScalePiece * i * step, count * 4);
            }
            const uint32_t row = plan.single(lane);
            if (Shifts && row < plan.existing) ptx::copy_async(to + (plan.shift + row) * 4, single);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < ceil_div(Rows, kWarpSize); ++i) {
                const uint32_t row = i * kWarpSize + lane;
                if (row < plan.existing) ptx::copy_async(to + row * 4, from + i * step);
            }
        }
    }
    /// Moves to the scales of a later k-block.
    __device__ void advance(const ScaleView& s, uint32_t k_blocks) {
        from += k_blocks * s.k_stride;
        if (Shifts) single += k_blocks * s.k_stride;
    }
};

/// Column of D at which a segment of a tile begins; past all columns if there is no such segment.
template <GemmConfig C>
__device__ inline uint32_t first_col_of(const Params<C>& p, const Tile& tile, uint32_t segment) {
    uint32_t col = p.n;
#pragma unroll
    for (uint32_t i = 0; i < n_segments(C); ++i)
        if (segment == i) col = segment_col(C, p.raster, tile.col, i);
    return col;
}

/// Copies of the scales of B's 128x128 blocks: lane i copies that of segment i. `data`: scales of the tile's B.
struct BlockCopies {
    uint32_t lane;
    bool copies;
    const float* from;

    __device__ BlockCopies(const ScaleView& s, const float* data, uint32_t first_col, uint32_t extent)
        : lane(threadIdx.x % kWarpSize),
          copies(first_col < extent),
          from(data + first_col / kScaleBlock * s.mn_stride) {}
    __device__ void issue(SmemAddr to) const {
        if (copies) ptx::copy_async(to + lane * 4, from);
    }
    __device__ void advance(const ScaleView& s, uint32_t k_blocks) { from += k_blocks * s.k_stride; }
};

template <GemmConfig C>
struct ScaleCopies {
    using B = Either<C.row_b_scales(), RowCopies<C.tile_n, false>, BlockCopies>;
    RowCopies<C.tile_m, C.row_groups()> a;
    B b;

    __device__ ScaleCopies(const Params<C>& p, const Tile& tile, uint32_t kb)
        : a(p.sfa, scales_of_a<C>(p, tile) + kb * p.sfa.k_stride, tile.rows), b(copies_of_b(p, tile, kb)) {}
    __device__ static B copies_of_b(const Params<C>& p, const Tile& tile, uint32_t kb) {
        const float* const data = scales_of_b<C>(p, tile) + kb * p.sfb.k_stride;
        if constexpr (C.row_b_scales())
            return B(p.sfb, data + tile.col * p.sfb.mn_stride, existing_rows(tile.col, C.tile_n, p.n));
        else return B(p.sfb, data, first_col_of<C>(p, tile, threadIdx.x % kWarpSize), p.n);
    }
    __device__ void load() {}
    /// Starts the copies into an empty stage.
    __device__ void fill(const Shared<C>& smem, uint32_t stage) const {
        a.issue(smem.sfa(stage));
        b.issue(smem.sfb(stage));
        ptx::mbarrier_arrive_after_copies(smem.full(stage));
    }
    __device__ void advance(const Params<C>& p, uint32_t k_blocks = 1) {
        a.advance(p.sfa, k_blocks);
        b.advance(p.sfb, k_blocks);
    }
};

/// Arrives for the last stage of a grouped kernel, which marks the end and has no scales.
template <GemmConfig C>
__device__ void end_scales(const Shared<C>& smem, RingCursor<C.stages> at) {
    if constexpr (C.grouped()) {
        wait(smem.empty(at.stage), at.parity);
        arrive_for_copies(smem, at.stage);
    }
}

/// Arrives for all lanes of a warp, where no copies do.
template <GemmConfig C>
__device__ inline void arrive_for_copies(const Shared<C>& smem, uint32_t stage) {
    if (threadIdx.x % kWarpSize < kLanesArrive) ptx::mbarrier_arrive(smem.full(stage), kWarpSize / kLanesArrive);
}

/// Stores a SplitScale into its row of a stage.
__device__ inline void store_row(SmemAddr to, uint32_t row, const SplitScale& parts) {
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

/// The scales of one k-block for `Rows` rows of a tile, in registers: lane i has those of the rows i, i + 32, ...
template <uint32_t Rows>
struct RowLoads {
    static constexpr uint32_t kEach = ceil_div(Rows, kWarpSize);
    uint32_t lane, existing;
    const float* from;
    int64_t step;  // from one of this lane's rows to its next
    float scale[kEach];

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
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i)
            scale[i] = i * kWarpSize + lane < existing ? ptx::load_global(from + i * step) : 0;
    }
    template <typename PartsOf>
    __device__ void store(SmemAddr to, const PartsOf& parts_of) const {
#pragma unroll
        for (uint32_t i = 0; i < kEach; ++i)
            if (const uint32_t row = i * kWarpSize + lane; row < Rows) store_row(to, row, parts_of(scale[i]));
    }
    __device__ void advance(const ScaleView& s) { from += s.k_stride; }
};

/// The scales of one k-block, split for the tensor cores, as a scale warp loads and stores them.
template <GemmConfig C>
struct SplitScaleLoads {
    RowLoads<C.tile_m> a;
    RowLoads<C.tile_n> b;

    __device__ SplitScaleLoads(const Params<C>& p, const Tile& tile, uint32_t kb)
        : a(p.sfa, scales_of_a<C>(p, tile) + kb * p.sfa.k_stride, tile.rows),
          b(p.sfb, scales_of_b<C>(p, tile) + kb * p.sfb.k_stride + tile.col * p.sfb.mn_stride,
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
    __device__ void advance(const Params<C>& p) {
        a.advance(p.sfa);
        b.advance(p.sfb);
    }
};

/// The first round of copies of scales for groups of rows: none need wait for an empty stage.
template <GemmConfig C>
__device__ void copy_first_scales_async(const Params<C>& p, const Shared<C>& smem, const Tile& tile,
                                        uint32_t scale_warp) {
    ScaleCopies<C> scales(p, tile, 0);
    const uint32_t blocks = first_round({0, p.k_blocks}, C.stages).size();
#pragma unroll 1
    for (uint32_t stage = 0; stage < blocks; ++stage) {
        if (stage % kScaleWarps == scale_warp) scales.fill(smem, stage);
        scales.advance(p);
    }
}

/// Loads scales of any layout. Each scale warp owns every third stage, so that it sees every round of its own. Nobody
/// waits for the copies: the last one to land completes the barrier. `Scales`: ScaleCopies or SplitScaleLoads.
template <GemmConfig C, typename Scales, typename Scheduler>
__device__ void copy_scales_async(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler, uint32_t scale_warp) {
    auto at = RingCursor<C.stages>::producer();
    uint32_t begun = 0;  // blocks of the tile that copy_first_scales_async has begun
    if constexpr (C.row_groups()) begun = first_round(scheduler.k, C.stages).size();
    for (Tile tile; scheduler.template take<C>(tile); begun = 0) {
        if constexpr (C.k_groups())
            if (scheduler.k.size() == 0 && !p.accumulate) zero_tile<C>(p, tile, scale_warp);
        Scales scales(p, tile, scheduler.k.begin + begun);
        if constexpr (C.row_groups()) at += begun;
#pragma unroll 1
        for (uint32_t kb = scheduler.k.begin + begun; kb < scheduler.k.end; ++kb, ++at) {
            if (at.stage % kScaleWarps == scale_warp) {
                scales.load();
                wait(smem.empty(at.stage), at.parity);
                scales.fill(smem, at.stage);
            }
            scales.advance(p);
        }
    }
    if (at.stage % kScaleWarps == scale_warp) end_scales(smem, at);
}

/// Scales of four k-blocks of a tile, in a warp's registers: one vector load for each row.
template <GemmConfig C>
struct ScaleVector {
    static constexpr uint32_t kBlocks = kScaleVectorBlocks;
    static constexpr uint32_t kRows = C.tile_m / kWarpSize;  // of each lane
    ptx::Float4 a[kRows];
    float b;  // lane 4 * i + j: scale of segment i in k-block j

    __device__ void load(const Params<C>& p, const Tile& tile, uint32_t kb) {
        static_assert(!C.row_b_scales());
        const uint32_t lane = threadIdx.x % kWarpSize;
        const float* from = scales_of_a<C>(p, tile) + lane * p.sfa.mn_stride + kb;
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i, from += kWarpSize * p.sfa.mn_stride)
            if (i * kWarpSize + lane < tile.rows) a[i] = ptx::load_global_x4(from);
        const uint32_t col = first_col_of<C>(p, tile, lane / kScaleVectorBlocks);
        if (col < p.n)
            b = ptx::load_global(scales_of_b<C>(p, tile) + col / kScaleBlock * p.sfb.mn_stride +
                                 (kb + lane % kScaleVectorBlocks) * p.sfb.k_stride);
    }
    __device__ void fill(uint32_t j, const Shared<C>& smem, uint32_t stage) const {
        const uint32_t lane = threadIdx.x % kWarpSize;
        const SmemAddr to_a = smem.sfa(stage), to_b = smem.sfb(stage);
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) ptx::store_shared(to_a + (i * kWarpSize + lane) * 4, a[i].part[j]);
        if (lane / kScaleVectorBlocks < b_scales(C) && lane % kScaleVectorBlocks == j)
            ptx::store_shared(to_b + lane / kScaleVectorBlocks * 4, b);
        __syncwarp();  // one lane's arrivals speak for the whole warp
        arrive_for_copies(smem, stage);
    }
};

/// Scales of four (or two) k-blocks for the rows of both operands; split for the tensor cores when they are stored.
template <GemmConfig C>
struct SplitScaleVector {
    static constexpr uint32_t kBlocks = kPlan<C>.scale_vector_blocks;
    using Blocks = Either<kBlocks == 2, ptx::Float2, ptx::Float4>;
    Blocks a[ceil_div(C.tile_m, kWarpSize)], b[ceil_div(C.tile_n, kWarpSize)];

    template <uint32_t Each>
    __device__ static void load(Blocks (&to)[Each], const ScaleView& s, uint32_t first_row, uint32_t rows,
                                uint32_t kb) {
        const uint32_t lane = threadIdx.x % kWarpSize;
        const float* from = s.data + (first_row + lane) * s.mn_stride + kb;
#pragma unroll
        for (uint32_t i = 0; i < Each; ++i, from += kWarpSize * s.mn_stride)
            if (i * kWarpSize + lane < rows) {
                if constexpr (kBlocks == 2) to[i] = ptx::load_global_x2(from);
                else to[i] = ptx::load_global_x4(from);
            }
    }
    __device__ void load(const Params<C>& p, const Tile& tile, uint32_t kb) {
        static_assert(!C.row_groups());
        // B's first: with 136 columns ptxas else has elements and the sums that they are added to in one bank.
        load(b, p.sfb, tile.col, existing_rows(tile.col, C.tile_n, p.n), kb);
        load(a, p.sfa, tile.row, tile.rows, kb);
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

/// Loads row-major scales as vectors: sixteen bytes of a row serve four k-blocks. Copied one by one they would be
/// fetched four times, and land in shared memory one at a time. The warps own vectors round-robin; a group of k-blocks
/// may have only a part of its first and last one. `Vector`: ScaleVector or SplitScaleVector.
template <GemmConfig C, typename Vector, typename Scheduler>
__device__ void load_scales_vectorised(const Params<C>& p, const Shared<C>& smem, Scheduler scheduler,
                                       uint32_t scale_warp) {
    if (!C.k_groups() && scale_warp >= kPlan<C>.vector_scale_warps) return;
    uint32_t owner = 0;
    auto at = RingCursor<C.stages>::producer();
    for (Tile tile; scheduler.template take<C>(tile);) {
        if constexpr (C.k_groups())
            if (scheduler.k.size() == 0 && !p.accumulate) zero_tile<C>(p, tile, scale_warp);
        const uint32_t first = C.k_groups() ? scheduler.k.begin / Vector::kBlocks * Vector::kBlocks : scheduler.k.begin;
#pragma unroll 1
        for (uint32_t kb = first; kb < scheduler.k.end;
             kb += Vector::kBlocks, owner = (owner + 1) % kPlan<C>.vector_scale_warps) {
            Vector vector;
            if (owner == scale_warp) vector.load(p, tile, kb);
#pragma unroll
            for (uint32_t j = 0; j < Vector::kBlocks; ++j) {
                if (C.k_groups() && (kb + j < scheduler.k.begin || kb + j >= scheduler.k.end)) continue;
                if (owner == scale_warp) {
                    wait(smem.empty(at.stage), at.parity);
                    vector.fill(j, smem, at.stage);
                }
                ++at;
            }
        }
    }
    if (owner == scale_warp) end_scales(smem, at);
}

/// The role of a scale warp. It reads any layout of the scales, without a kernel before this one. Math warps on the
/// same SM sub-partition wait for every instruction here, so there are few.
template <GemmConfig C, typename Scheduler>
__device__ void load_scales(const Params<C>& p, const Shared<C>& smem, const Scheduler& scheduler,
                            uint32_t scale_warp) {
    if constexpr (!C.grouped()) ptx::grid_dependency_wait();
    if constexpr (C.scales == ScaleLayout::Rows)
        load_scales_vectorised<C, Either<kPlan<C>.tensor_core_scales(), SplitScaleVector<C>, ScaleVector<C>>>(
            p, smem, scheduler, scale_warp);
    else
        copy_scales_async<C, Either<kPlan<C>.tensor_core_scales(), SplitScaleLoads<C>, ScaleCopies<C>>>(
            p, smem, scheduler, scale_warp);
}

}  // namespace finegemm::device
