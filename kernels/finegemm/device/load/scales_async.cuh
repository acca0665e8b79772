// ScaleCopies: scales of any layout, by asynchronous copies. Layer device.
#pragma once

#include <finegemm/core/tma_box.h>
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

/// The scales of A of kernels whose rows may be found by numbers, copied row by row. Where they are, the codes of these
/// rows are copied, too: TMA would take a box for each. A row that is not in A becomes zeros, and its scale.
template <GemmConfig C>
struct IndexedRowCopies {
    static constexpr uint32_t kRows = C.tile_m / kWarpSize;  // of a lane
    static constexpr uint32_t kPieces = kRowBytes / 16, kAtOnce = kWarpSize / kPieces;  // pieces of a row, rows of a warp
    const KernelParams<C>& p;
    uint32_t lane, existing, kb;
    uint32_t of_a[kRows];  // rows of A of the lane's rows of the tile

    __device__ IndexedRowCopies(const Params<C>& params, const Tile& tile, uint32_t first_block)
        : p(static_cast<const KernelParams<C>&>(params)),
          lane(threadIdx.x % kWarpSize),
          existing(tile.rows),
          kb(first_block) {
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) {
            const uint32_t row = tile.row + min(i * kWarpSize + lane, existing - 1);
            of_a[i] = gathers() ? static_cast<uint32_t>(p.finish.a_rows[row]) : row;
        }
    }
    __device__ bool gathers() const { return p.finish.a_rows; }

    /// Starts the copies into an empty stage.
    __device__ void issue(const Shared<C>& smem, uint32_t stage) const {
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) {
            const uint32_t row = i * kWarpSize + lane;
            const bool is_row = of_a[i] < p.finish.a_count;
            const float* const from = p.sfa.data + (is_row ? of_a[i] * p.sfa.mn_stride + kb * p.sfa.k_stride : 0);
            if (row < existing) ptx::copy_async(smem.sfa(stage) + row * 4, from, is_row ? 4 : 0);
        }
        if (gathers()) copy_codes(smem.a(stage));
    }
    __device__ void advance(const ScaleView&, uint32_t k_blocks) { kb += k_blocks; }

private:
    /// Eight lanes copy a row in pieces of 16 bytes, each to where the swizzle has it, and four rows go at once.
    __device__ void copy_codes(SmemAddr to) const {
        const uint32_t piece = lane % kPieces, k = kb * C.tile_k() + piece * 16;
        const uint8_t* const codes = p.finish.a + k;
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) {
            const uint32_t end = min(existing, (i + 1) * kWarpSize);
#pragma unroll 2
            for (uint32_t first = i * kWarpSize; first < end; first += kAtOnce) {  // more would take spilled registers
                const uint32_t row = first + lane / kPieces, from = ptx::value_of(of_a[i], row % kWarpSize);
                const bool is_there = from < p.finish.a_count && k < p.finish.k;
                const uint8_t* const at = is_there ? codes + from * p.finish.a_row_stride : p.finish.a;
                ptx::copy_async_x4(to + swizzled(row * kRowBytes + piece * 16, Swizzle::B128),
                                   reinterpret_cast<const float*>(at), is_there ? 16 : 0);
            }
        }
    }
};

template <GemmConfig C>
struct ScaleCopies {
    static constexpr bool kIndexed = C.finish == Finish::Indexed;
    using A = Either<kIndexed, IndexedRowCopies<C>, RowCopies<C.tile_m, kPlan<C>.shifted_scales>>;
    using B = Either<C.row_b_scales(), RowCopies<C.tile_n, false>, BlockCopies>;
    A a;
    B b;

    __device__ ScaleCopies(const Params<C>& p, const Tile& tile, uint32_t kb)
        : a(copies_of_a(p, tile, kb)), b(copies_of_b(p, tile, kb)) {}
    __device__ static A copies_of_a(const Params<C>& p, const Tile& tile, uint32_t kb) {
        if constexpr (kIndexed) return A(p, tile, kb);
        else return A(p.sfa, scales_of_a(p, tile) + kb * p.sfa.k_stride, tile.rows);
    }
    __device__ static B copies_of_b(const Params<C>& p, const Tile& tile, uint32_t kb) {
        const float* const data = scales_of_b(p, tile) + kb * p.sfb.k_stride;
        if constexpr (C.row_b_scales())
            return B(p.sfb, data + tile.col * p.sfb.mn_stride, existing_rows(tile.col, C.tile_n, p.n));
        else return B(p.sfb, data, first_col_of<C>(p, tile, threadIdx.x % kWarpSize), p.n);
    }
    __device__ void load() {}
    /// Starts the copies into an empty stage.
    __device__ void fill(const Shared<C>& smem, uint32_t stage) const {
        if constexpr (kIndexed) a.issue(smem, stage);
        else a.issue(smem.sfa(stage));
        b.issue(smem.sfb(stage));
        if constexpr (kIndexed)
            if (a.gathers()) return arrive_with_codes(smem.full(stage));
        ptx::mbarrier_arrive_after_copies(smem.full(stage));
    }
    /// wgmma reads codes through another proxy than these copies wrote them: each lane waits for its own and orders
    /// them before. The other warps have copies of other stages on their way meanwhile.
    __device__ static void arrive_with_codes(SmemAddr full) {
        ptx::wait_for_copies();
        ptx::fence_proxy_async_shared();
        ptx::mbarrier_arrive(full);
    }
    __device__ void advance(const Params<C>& p, uint32_t k_blocks = 1) {
        a.advance(p.sfa, k_blocks);
        b.advance(p.sfb, k_blocks);
    }
};

}  // namespace finegemm::device
