// Consumer: the state of a math warpgroup; KBlockIterator: its k-blocks, tile after tile. Layer device.
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/gemm/k_slices.h>
#include <finegemm/device/mma/promotion.cuh>
#include <finegemm/device/pipeline/barriers.cuh>
#include <finegemm/device/ptx/tma.cuh>
#include <finegemm/device/schedule/tiles.cuh>

namespace finegemm::device {

/// The lower half of the descriptor of a tile of A or B. MN-major tiles are boxes of kMnBox rows of M or N.
template <Major M>
__device__ inline uint32_t descriptor_low(uint32_t address) {
    return M == Major::MN ? wgmma_mn_descriptor_low(address, kMnBox * kRowBytes) : wgmma_descriptor_low(address);
}

/// The state of a math warpgroup in the main loop: its rows (swapped, all of a tile), and the addresses of its operands
/// and scales.
template <GemmConfig C>
struct Consumer {
    const Shared<C>& smem;
    uint32_t warpgroup, first_row;
    uint32_t lane;
    SmemAddr row_scales;  // of this thread's upper row, in stage 0
    SmemAddr b_scales;    // of the tile's 128x128 blocks of B, in stage 0
    uint32_t shift = 0;   // in floats, from the first one of the stage (ScaleCopyPlan)
    static constexpr uint32_t kScaleBytes = C.mx() ? kMxScaleBytes : 4;  // of a row, where math warps read them

    __device__ explicit Consumer(const Shared<C>& shared)
        : smem(shared),
          warpgroup(ptx::broadcast(threadIdx.x / 128)),
          first_row(C.swapped() ? 0 : first_row_of(C, warpgroup)),
          lane(threadIdx.x % kWarpSize),
          row_scales(shared.sfa(0) + (first_row + wgmma_accumulator(threadIdx.x % 128, 0).row) * kScaleBytes),
          b_scales(shared.sfb(0)) {
        // Shuffled to the lanes that have them: the compiler would else compute these values again before each block,
        // to save registers. Three warpgroups have none to spare, nor have promotions by scales of rows of B.
        if constexpr (C.math_warpgroups < 3 && !C.row_b_scales()) {
            lane = ptx::value_of(lane, lane);
            row_scales.bits = ptx::value_of(row_scales.bits, lane);
        }
        // Hidden from the compiler, which loads from an address that all lanes share into a uniform register, after the
        // wait for a block.
        if constexpr (C.several_segments()) b_scales.bits = ptx::value_of(b_scales.bits, lane);
    }

    /// Tells all producers that write into this stage, in a cluster those of all CTAs, that this warp has read it.
    __device__ void release(uint32_t stage) const {
        constexpr uint32_t kServed = kPlan<C>.producers_served;
        __syncwarp();  // the whole warp has read its scales
        if constexpr (kServed > 1) {
#pragma unroll
            for (uint32_t i = 0; i < kServed * kLanesArrive; i += kWarpSize)
                if (i + lane < kServed * kLanesArrive)
                    ptx::mbarrier_arrive_cluster(ptx::map_to_rank(smem.empty(stage), (i + lane) / kLanesArrive));
        } else {
            if (lane < kLanesArrive) ptx::mbarrier_arrive(smem.empty(stage));
        }
    }

    /// Moves to a tile whose row scales begin `floats` floats behind the stage's first one.
    __device__ void shift_scales(uint32_t floats) {
        row_scales = row_scales + (floats - shift) * 4;
        shift = floats;
    }

    /// Operands of the i-th WGMMA of this warpgroup.
    __device__ Operands operands(uint32_t stage, uint32_t i) const {
        if (C.swapped())
            return {.a = descriptor_low<C.b.major>(smem.b(stage).bits + swapped_part_of(C, warpgroup) * 64 * kRowBytes),
                    .b = descriptor_low<C.a.major>(smem.a(stage).bits),
                    .sfa = 0,
                    .sfb = 0};
        const uint32_t row = first_row + row_step(i);
        Operands at{.a = descriptor_low<C.a.major>(smem.a(stage).bits + row * kRowBytes),
                    .b = descriptor_low<C.b.major>(smem.b(stage).bits + col_step(i) * kRowBytes),
                    .sfa = 0,
                    .sfb = 0};
        ScaleProductOf<C>::add_to(at, smem, stage, row, warpgroup);
        return at;
    }
    // Rows, and columns, from the first WGMMA to the i-th.
    __device__ static uint32_t row_step(uint32_t i) { return C.wgmmas_n() > 1 ? 0 : i * rows_apart(C); }
    __device__ static uint32_t col_step(uint32_t i) { return C.wgmmas_n() > 1 ? i * C.wgmma_cols() : 0; }
    /// Address of the scale of this thread's upper row in the i-th 64 rows.
    __device__ SmemAddr rows_of(uint32_t stage, uint32_t i) const {
        return row_scales + (stage * smem.kAt.sfa_stage + row_step(i) * kScaleBytes);
    }
    __device__ Scales scales(uint32_t stage, uint32_t i) const {
        if constexpr (C.row_b_scales()) return {};
        const SmemAddr rows = rows_of(stage, i), b = b_scales + stage * smem.kAt.sfb_stage;
        Scales s{.a_upper = ptx::load_shared(rows), .a_lower = ptx::load_shared(rows + 8 * 4), .b = {}};
#pragma unroll
        for (uint32_t segment = 0; segment < wgmma_segments(C); ++segment)
            s.b[segment] = ptx::load_shared(b + (C.wgmmas_n() > 1 ? i : segment) * 4);
        return s;
    }
    /// Factors of the i-th 64 rows for 1D1D scales.
    __device__ RowFactors row_factors(uint32_t stage, uint32_t i) const {
        const SmemAddr rows = rows_of(stage, i);
        return {.upper = ptx::load_shared(rows),
                .lower = ptx::load_shared(rows + 8 * 4),
                .b = smem.sfb(stage) + wgmma_accumulator(threadIdx.x % 128, 0).col * 4};
    }
    /// Factors of the i-th 64 rows for MX scales.
    __device__ MxFactors mx_factors(uint32_t stage, uint32_t i) const {
        const RowCol at = wgmma_accumulator(threadIdx.x % 128, 0);
        const SmemAddr rows = C.swapped() ? smem.sfb(stage) + at.row * kScaleBytes : rows_of(stage, i);
        return {.upper = ptx::load_shared_x4(rows),
                .lower = ptx::load_shared_x4(rows + 8 * kScaleBytes),
                .b = (C.swapped() ? smem.sfa(stage) : smem.sfb(stage)) + at.col * kScaleBytes};
    }
    /// Factors of the i-th 64 rows and all columns of the block in `stage`, whose scales `s` are.
    __device__ FactorsOf<C> factors(const Scales& s, uint32_t stage, uint32_t i) const {
        return FactorsOf<C>::of(*this, s, stage, i);
    }
};

/// Iterates over the k-blocks of all tiles of a CTA, or over this warpgroup's k-slice of them, as one sequence: so the
/// first block of a tile is started before the previous tile is stored.
template <GemmConfig C, typename Tiles>
struct KBlockIterator {
    FG_HD static constexpr bool ragged() { return Tiles::ragged(); }
    Consumer<C>& consumer;
    Tiles tiles;
    Tile tile{};        // that the block belongs to; no rows: the end
    uint32_t left = 0;  // blocks of the tile, this one included
    RingCursor<C.stages> at = RingCursor<C.stages>::consumer();
    // Stage of the next block: computing an address from a stage takes long, so it begins one block ahead.
    RingCursor<C.stages> ahead;

    __device__ KBlockIterator(Consumer<C>& math, const Tiles& of) : consumer(math), tiles(of) {
        if constexpr (C.k_slices() > 1) at += k_slice_of(C, consumer.warpgroup);
        ahead = at;
        ahead += C.k_slices();
    }

    __device__ bool next_tile() {
        const bool exists = tiles.take(tile, at);
        left = blocks_of_slice(tiles.k_blocks, C.k_slices(), k_slice_of(C, consumer.warpgroup));
        if constexpr (ragged()) consumer.shift_scales(tiles.shift);
        return exists;
    }
    /// Does this warpgroup have rows of the tile? A dense tile that lacks some is the last of a column, and rare.
    __device__ bool has_rows() const { return !ragged() || tile.rows > consumer.first_row; }
    __device__ bool last_of_tile() const { return left == 1; }
    __device__ void advance() {
        at = ahead;
        ahead += C.k_slices();
    }
    /// Moves to the next block while the tiles have rows for this warpgroup; false at the first tile that has none.
    __device__ bool next() {
        advance();
        if constexpr (ragged()) {  // so that the blocks in between do not wait for what the last one needs
            if (left == 1) {
                if (!next_tile() || !has_rows()) return false;
            } else {
                --left;
            }
            return true;
        }
        if (left == 1) return kPlan<C>.persistent && next_tile();
        --left;
        return true;
    }
    /// Moves to the next tile of which this warpgroup has rows, this one or a later one, and releases stages between.
    __device__ bool skip_to_rows() {
        while (tile.rows > 0 && !has_rows()) {
            for (; left > 0; --left, advance()) {
                wait(consumer.smem.full(at.stage), at.parity);
                consumer.release(at.stage);
            }
            next_tile();
        }
        return tile.rows > 0;
    }
};

}  // namespace finegemm::device
