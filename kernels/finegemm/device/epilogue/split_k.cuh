// Split-K reduction: the CTAs of a cluster add their partial sums through distributed shared memory. Layer device.
// Rank r owns a share of the columns: all ranks send it theirs, it adds them in the order of the ranks and stores. The
// order is fixed, so the result is; nothing outside of the cluster is written before it is final.
#pragma once

#include <finegemm/gemm/k_slices.h>
#include <finegemm/gemm/params.h>
#include <finegemm/device/epilogue/store_bf16.cuh>

namespace finegemm::device {

/// One warpgroup's part of the reduction.
template <GemmConfig C>
struct SplitKReduce {
    static constexpr uint32_t kCols = split_cols(C), kPitch = split_pitch(C), kRows = C.rows_per_warpgroup();
    // A rank's own part stays out of the cluster's network: 4 to 15% of the time with tiles of 128
    // rows. With 64 it is little, and the code for it costs 5% at M = 1: instructions come from memory, too.
    static constexpr bool kKeepsOwn = C.tile_m > 64 && !C.swapped();
    uint32_t part;  // of the tile's rows
    SmemAddr buffer, barrier;
    uint32_t rank, rows;  // rows: those that exist in D

    __device__ SplitKReduce(const Shared<C>& smem, const Tile& tile, uint32_t cluster_rank)
        : part(row_part_of(C, threadIdx.x / 128)),
          buffer(smem.partials(part)),
          barrier(smem.partials_full(part)),
          rank(cluster_rank),
          rows(existing_rows(C.swapped() ? 0 : part * kRows, kRows, tile.rows)) {}

    __device__ static uint32_t cols_of(uint32_t owner) {
        return owner * kCols < split_of_cols(C) ? min(split_of_cols(C) - owner * kCols, kCols) : 0;
    }
    __device__ static uint32_t offset(uint32_t sender, uint32_t row, uint32_t col) {
        return ((sender * kRows + row) * kPitch + col) * 4;
    }

    __device__ static uint32_t swapped_offset(uint32_t sender, uint32_t row, uint32_t col) {
        return ((sender * kCols + col) * swapped_split_pitch(C) + row) * 4;
    }

    /// Expects the bytes that will be sent here. Once per launch: a cluster has one tile.
    __device__ void expect() const {
        const uint32_t sent_rows = C.swapped() ? align_up(rows, 2) : rows;  // two neighbours at once
        const uint32_t bytes = (C.k_splits() - kKeepsOwn) * sent_rows * cols_of(rank) * 4;
        if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    }

    __device__ void send(const Accumulator<C>& acc) const {
        ptx::cluster_wait();  // for the barriers of the others, since set_up_and_load
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
#pragma unroll
            for (uint32_t r = 0; r < C.tile_n / 2; r += 2) {
                const RowCol at = wgmma_accumulator(threadIdx.x % 128, r);
                const uint32_t owner = r / 4 * 8 / kCols;  // eight columns have one owner
                const uint32_t row = i * 64 + at.row;
                const uint32_t to = offset(rank, row, at.col - owner * kCols);
                if (row >= rows) continue;
                if (kKeepsOwn && owner == rank) ptx::store_shared_x2(buffer + to, acc.sum[i][r], acc.sum[i][r + 1]);
                else
                    ptx::st_async_x2(ptx::map_to_rank(buffer, owner) + to, acc.sum[i][r], acc.sum[i][r + 1],
                                     ptx::map_to_rank(barrier, owner));
            }
    }

    /// Likewise of swapped products, a thread's two rows of which are columns of D: to where those of a column lie one
    /// behind the other.
    __device__ void send(const Accumulator<C>& acc) const
        requires(C.swapped())
    {
        ptx::cluster_wait();
#pragma unroll
        for (uint32_t lower = 0; lower < 2; ++lower) {
            const uint32_t col = swapped_col(C, wgmma_accumulator(threadIdx.x % 128, lower * 2).row), owner = col / kCols;
            const SmemAddr to = ptx::map_to_rank(buffer, owner) + swapped_offset(rank, 0, col - owner * kCols);
            const SmemAddr arrive = ptx::map_to_rank(barrier, owner);
#pragma unroll
            for (uint32_t r = lower * 2; r < C.tile_m / 2; r += 4)
                if (const uint32_t row = wgmma_accumulator(threadIdx.x % 128, r).col; row < rows)
                    ptx::st_async_x2(to + row * 4, acc.sum[0][r], acc.sum[0][r + 1], arrive);
        }
    }

    /// Waits for all parts of this rank's share: those that were sent, and those of this warpgroup's threads.
    __device__ void await_parts() const {
        while (!ptx::mbarrier_try_wait_cluster(barrier, 0)) {}
        if (kKeepsOwn) warpgroup_barrier(threadIdx.x / 128);
    }

    /// Likewise of swapped products.
    __device__ void sum(uint32_t row, uint32_t col, ptx::Float4& low, ptx::Float4& high) const
        requires(C.swapped())
    {
        low = high = {};
#pragma unroll 1
        for (uint32_t sender = 0; sender < C.k_splits(); ++sender)
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                low.part[i] += ptx::load_shared(buffer + swapped_offset(sender, row, col + i));
                high.part[i] += ptx::load_shared(buffer + swapped_offset(sender, row, col + 4 + i));
            }
    }
    /// Eight columns, summed over the ranks in order. Not unrolled: that costs a tenth of the compile time.
    __device__ void sum(uint32_t row, uint32_t col, ptx::Float4& low, ptx::Float4& high) const {
        low = ptx::load_shared_x4(buffer + offset(0, row, col));
        high = ptx::load_shared_x4(buffer + offset(0, row, col + 4));
#pragma unroll 1
        for (uint32_t sender = 1; sender < C.k_splits(); ++sender) {
            const ptx::Float4 low_part = ptx::load_shared_x4(buffer + offset(sender, row, col));
            const ptx::Float4 high_part = ptx::load_shared_x4(buffer + offset(sender, row, col + 4));
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                low.part[i] += low_part.part[i];
                high.part[i] += high_part.part[i];
            }
        }
    }
};

/// Stores eight sums to D; to one of f32 they may be added.
template <GemmConfig C>
__device__ void store_eight(const GemmParams& p, int64_t at, const ptx::Float4& low, const ptx::Float4& high) {
    if (C.output == Output::F32) {
        float* const d = static_cast<float*>(p.d_data) + at;
        ptx::store_global_x4_if(!p.accumulate, d, low);
        ptx::store_global_x4_if(!p.accumulate, d + 4, high);
        ptx::add_global_x4_if(p.accumulate, d, low);
        ptx::add_global_x4_if(p.accumulate, d + 4, high);
    } else {
        ptx::store_global_x4(
            static_cast<uint16_t*>(p.d_data) + at,
            ptx::Words4{pack<C.output>(low.part[0], low.part[1]), pack<C.output>(low.part[2], low.part[3]),
                        pack<C.output>(high.part[0], high.part[1]), pack<C.output>(high.part[2], high.part[3])});
    }
}

template <GemmConfig C>
__device__ void split_k_reduce(const GemmParams& p, const Accumulator<C>& acc, const Shared<C>& smem, const Tile& tile,
                               uint32_t rank) {
    const SplitKReduce<C> reduce(smem, tile, rank);
    reduce.expect();
    reduce.send(acc);
    reduce.await_parts();
    const uint32_t first_row = tile.row + (C.swapped() ? 0 : reduce.part * C.rows_per_warpgroup());
    const uint32_t first_col = rank * SplitKReduce<C>::kCols + (C.swapped() ? reduce.part * kSwappedCols : 0);
    const uint32_t pieces = SplitKReduce<C>::cols_of(rank) / 8;  // of eight columns of a row of D
    for (uint32_t i = threadIdx.x % 128; i < reduce.rows * pieces; i += 128) {
        // Swapped, neighbours have rows of their own, whose sums lie in different banks.
        const uint32_t row = C.swapped() ? i % reduce.rows : i / pieces,
                       col = (C.swapped() ? i / reduce.rows : i % pieces) * 8;
        ptx::Float4 low, high;
        reduce.sum(row, col, low, high);
        const uint32_t d_col = column_of(C, p.raster, tile.col, first_col + col);
        if (d_col < p.n)  // N is a multiple of 8: a piece exists wholly or not at all
            store_eight<C>(p, (first_row + row) * p.d_row_stride + d_col, low, high);
    }
}

}  // namespace finegemm::device
