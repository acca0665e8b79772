// IndexedEpilogue: rows of the product, each times its factor, at the rows of D that numbers say. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/epilogue/store_bf16.cuh>

namespace finegemm::device {

/// What belongs to the rows of a warp of one 64-row WGMMA.
struct PlacedRows {
    uint64_t to;         // where the row of D begins of a lane's row, for the first 16 lanes; none: 0
    float upper, lower;  // factors of a thread's two rows
};

/// A warp stores its 16 rows of a WGMMA through its strip in pieces of 16 bytes, each row where it belongs. Each row of
/// D is that of one row of the product at most, or the last one of several to come stays.
template <GemmConfig C>
struct IndexedEpilogue {
    static_assert(kPlan<C>.store == Store::Strip && C.k_slices() == 1 && C.cluster == 1 && n_segments(C) == 1);
    static constexpr bool kF32 = C.output == Output::F32;

    const KernelParams<C>& p;
    const Shared<C>& smem;
    PlacedRows rows[C.wgmmas_m()];

    __device__ IndexedEpilogue(const Params<C>& params, const Shared<C>& shared, uint32_t = 0, uint32_t = 0)
        : p(static_cast<const KernelParams<C>&>(params)), smem(shared) {}

    /// Numbers and factors are on their way while the tensor cores work: no epilogue waits for them.
    __device__ void load_source(const Tile& tile, uint32_t& next, uint32_t /*count*/) {
        if (next > 0) return;
        next = 1;
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i) rows[i] = placed_rows(tile, offset(i));
    }

    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) const {
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
            if (p.finish.sums) round_to_bf16(acc.sum[i]);
            if (p.finish.sums || p.finish.factors) multiply(acc.sum[i], rows[i]);
            store(acc.sum[i], rows[i].to, tile);
        }
    }

private:
    __device__ static uint32_t warp() { return threadIdx.x / kWarpSize; }
    __device__ static uint32_t offset(uint32_t i) { return device::first_row_of<C>(warp()) + i * rows_apart(C); }

    /// What belongs to the 16 rows from `offset` of the tile on.
    __device__ PlacedRows placed_rows(const Tile& tile, uint32_t offset) const {
        const uint32_t lane = threadIdx.x % kWarpSize, existing = existing_rows(offset, kWarpRows, tile.rows);
        const uint32_t first = tile.row + offset, row = wgmma_accumulator(lane, 0).row;
        return {address_of_row(first, lane, existing), factor(first, row, existing), factor(first, row + 8, existing)};
    }
    __device__ uint64_t address_of_row(uint32_t first, uint32_t lane, uint32_t existing) const {
        if (lane >= existing) return 0;
        if (p.finish.addresses_of_d) return p.finish.addresses_of_d[first + lane];
        const uint32_t row =
            p.finish.numbers_of_d ? static_cast<uint32_t>(p.finish.numbers_of_d[first + lane]) : first + lane;
        if (row >= p.finish.d_count) return 0;
        return reinterpret_cast<uint64_t>(p.d_data) + row * p.d_row_stride * bytes_of(C.output);
    }
    __device__ float factor(uint32_t first, uint32_t row, uint32_t existing) const {
        if (row >= existing || !p.finish.factors) return 1.0f;
        return ptx::load_global(p.finish.factors + (first + row) * p.finish.factor_stride);
    }

    /// A thread's registers are of its two rows, in pairs in turn. Sums begin at zero, and are never -0; a product is
    /// as it is, as -0 changes nothing that it is added to.
    __device__ void multiply(float (&sum)[C.tile_n / 2], const PlacedRows& of) const {
        const float begin = p.finish.sums ? 0.0f : -0.0f;
#pragma unroll
        for (uint32_t r = 0; r < C.tile_n / 2; ++r) sum[r] = ptx::fma(sum[r], r % 4 < 2 ? of.upper : of.lower, begin);
    }

    __device__ void store(const float (&sum)[C.tile_n / 2], uint64_t to, const Tile& tile) const {
        constexpr uint32_t kCols = kPlan<C>.strip_cols;
        static_assert(C.tile_n % kCols == 0);
        const uint32_t lane = threadIdx.x % kWarpSize;
        const SmemAddr strip = smem.d(strip_of(C, warp()));
#pragma unroll
        for (uint32_t col = 0; col < C.tile_n; col += kCols) {
            __syncwarp();  // all lanes have read what the strip had before
            write<kCols>(sum, strip, col);
            __syncwarp();
#pragma unroll
            for (uint32_t i = 0; i < strip_pieces(C, kCols); ++i) {
                const RowCol at = strip_piece(C, kCols, lane, i);
                const uint64_t row = value_of_wide(to, at.row);
                const uint32_t d_col = tile.col + col + at.col;
                // N is a multiple of 8: a piece exists or it does not.
                ptx::store_global_x4_if(row != 0 && d_col < p.n,
                                        reinterpret_cast<uint8_t*>(row) + d_col * bytes_of(C.output),
                                        ptx::load_shared_words_x4(strip + strip_offset<C>(at)));
            }
        }
    }
    __device__ static uint64_t value_of_wide(uint64_t x, uint32_t lane) {
        const uint32_t high = ptx::value_of(static_cast<uint32_t>(x >> 32), lane);
        return static_cast<uint64_t>(high) << 32 | ptx::value_of(static_cast<uint32_t>(x), lane);
    }
    template <uint32_t Cols>
    __device__ static void write(const float (&sum)[C.tile_n / 2], SmemAddr strip, uint32_t col)
        requires(kF32)
    {
#pragma unroll
        for (uint32_t r = 0; r < Cols / 2; r += 2)
            ptx::store_shared_x2(strip + strip_offset<C>(wgmma_accumulator(threadIdx.x % kWarpSize, r)),
                                 sum[col / 2 + r], sum[col / 2 + r + 1]);
    }
    template <uint32_t Cols>
    __device__ static void write(const float (&sum)[C.tile_n / 2], SmemAddr strip, uint32_t col)
        requires(!kF32)
    {
        write_rows<C.output, Cols>(sum, col, [&](RowCol at) { return strip + strip_offset<C>(at); });
    }
};

}  // namespace finegemm::device
