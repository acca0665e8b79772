// ScaleCopies: scales of any layout, by asynchronous copies. Layer device.
#pragma once

#include <finegemm/device/load/scale_views.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

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
    RowCopies<C.tile_m, kPlan<C>.shifted_scales> a;
    B b;

    __device__ ScaleCopies(const Params<C>& p, const Tile& tile, uint32_t kb)
        : a(p.sfa, scales_of_a(p, tile) + kb * p.sfa.k_stride, tile.rows), b(copies_of_b(p, tile, kb)) {}
    __device__ static B copies_of_b(const Params<C>& p, const Tile& tile, uint32_t kb) {
        const float* const data = scales_of_b(p, tile) + kb * p.sfb.k_stride;
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

}  // namespace finegemm::device
