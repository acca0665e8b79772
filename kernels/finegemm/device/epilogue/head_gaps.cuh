// HeadGapsEpilogue: D in heads with a gap in each, which stays as it is. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/either.cuh>
#include <finegemm/device/epilogue/store_bf16.cuh>

namespace finegemm::device {

/// Stores strips, as store_rows does, but each piece where its head has it. Gaps, and what lies beside them, are
/// multiples of eight columns: a piece has all of its columns on one side.
template <GemmConfig C>
struct HeadStripsEpilogue {
    static_assert(kPlan<C>.store == Store::Strip && !kPlan<C>.published_tiles && C.k_slices() == 1);
    static_assert(n_segments(C) == 1, "columns of a tile are neighbours in the product");
    static constexpr uint32_t kCols = kPlan<C>.strip_cols;

    const KernelParams<C>& p;
    const Shared<C>& smem;

    __device__ HeadStripsEpilogue(const Params<C>& params, const Shared<C>& shared, uint32_t = 0, uint32_t = 0)
        : p(static_cast<const KernelParams<C>&>(params)), smem(shared) {}

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}

    __device__ void operator()(const Accumulator<C>& acc, const Tile& tile) const {
        const uint32_t warp = threadIdx.x / kWarpSize;
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
            store(acc.sum[i], smem.d(strip_of(C, warp)), tile, first_row_of<C>(warp) + i * rows_apart(C));
    }

private:
    /// Stores this warp's 16 rows of one 64-row WGMMA.
    __device__ void store(const float (&sum)[C.tile_n / 2], SmemAddr strip, const Tile& tile, uint32_t offset) const {
        const uint32_t lane = threadIdx.x % kWarpSize, rows = existing_rows(offset, kWarpRows, tile.rows);
        uint16_t* const d = static_cast<uint16_t*>(p.d_data) + (tile.row + offset) * p.d_row_stride;
#pragma unroll
        for (uint32_t first = 0; first < C.tile_n; first += kCols) {
            __syncwarp();  // all lanes have read what the strip had before
            write_rows<C.output, kCols>(sum, first, [&](RowCol at) { return strip + strip_offset<C>(at); });
            __syncwarp();
#pragma unroll
            for (uint32_t i = 0; i < strip_pieces(C, kCols); ++i) {
                const RowCol at = strip_piece(C, kCols, lane, i);
                const uint32_t col = tile.col + first + at.col;
                ptx::store_global_x4_if(at.row < rows && col < p.n, d + at.row * p.d_row_stride + p.finish.of(col),
                                        ptx::load_shared_words_x4(strip + strip_offset<C>(at)));
            }
        }
    }
};

/// Stores panels: by TMA where each lies on one side of a gap, else in pieces, as strips are.
template <GemmConfig C>
struct HeadPanelsEpilogue {
    static_assert(kPlan<C>.tma_store() && !kPlan<C>.published_tiles && C.k_slices() == 1);
    static constexpr uint32_t kPanelCols = panel_width(0), kPanels = C.tile_n / kPanelCols;
    static_assert(C.tile_n % kPanelCols == 0 && n_segments(C) == 1);

    const KernelParams<C>& p;
    const Shared<C>& smem;

    __device__ HeadPanelsEpilogue(const Params<C>& params, const Shared<C>& shared, uint32_t = 0, uint32_t = 0)
        : p(static_cast<const KernelParams<C>&>(params)), smem(shared) {}

    __device__ void load_source(const Tile&, uint32_t& /*next*/, uint32_t /*count*/) const {}

    __device__ void operator()(const Accumulator<C>& acc, const Tile& tile) const {
        const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
        // The ways part before sums are packed: the compiler clears them beside that, but not across a branch.
        if (p.finish.right % kPanelCols != 0 || p.finish.head.divisor % kPanelCols != 0) {
            write(acc, warp);
            copy_panels(warp, tile);
        } else {
            write(acc, warp);
            store_panels(warp, tile);
        }
    }

private:
    __device__ void write(const Accumulator<C>& acc, uint32_t warp) const {
        ptx::bulk_wait_read();  // until TMA has read the previous tile's panels
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i) write_panels<C>(acc.sum[i], smem.d(warp) + i * panels_bytes(C));
        ptx::fence_proxy_async_shared();
        __syncwarp();
    }
    /// Columns past the end of the product lie past that of D, and TMA leaves them out.
    __device__ void store_panels(uint32_t warp, const Tile& tile) const {
#pragma unroll
        for (uint32_t i = 0; i < C.wgmmas_m(); ++i)
#pragma unroll
            for (uint32_t j = 0; j < kPanels; ++j)
                ptx::tma_store(&p.d[0], panel(warp, i, j), p.finish.of(tile.col + j * kPanelCols),
                               tile.row + first_row_of<C>(warp) + i * rows_apart(C));
        ptx::bulk_commit_group();
    }
    __device__ SmemAddr panel(uint32_t warp, uint32_t i, uint32_t j) const {
        return smem.d(warp) + (i * panels_bytes(C) + kWarpRows * j * kPanelCols * 2);
    }
    /// Piece by piece. Not unrolled: few heads have such parts.
    __device__ void copy_panels(uint32_t warp, const Tile& tile) const {
        constexpr uint32_t kPieces = kPanelCols / 8;
#pragma unroll 1
        for (uint32_t panels = 0; panels < C.wgmmas_m() * kPanels; ++panels) {
            const uint32_t i = panels / kPanels, j = panels % kPanels, col = tile.col + j * kPanelCols;
            const uint32_t offset = first_row_of<C>(warp) + i * rows_apart(C);
            const uint32_t rows = existing_rows(offset, kWarpRows, tile.rows);
            uint16_t* const d = static_cast<uint16_t*>(p.d_data) + (tile.row + offset) * p.d_row_stride;
#pragma unroll 1
            for (uint32_t piece = threadIdx.x % kWarpSize; piece < rows * kPieces; piece += kWarpSize) {
                const RowCol at = {.row = piece / kPieces, .col = piece % kPieces * 8};
                ptx::store_global_x4_if(col + at.col < p.n, d + at.row * p.d_row_stride + p.finish.of(col + at.col),
                                        ptx::load_shared_words_x4(panel(warp, i, j) + panel_offset(kPanelCols, at)));
            }
        }
    }
};

/// Panels where the plan has room for them.
template <GemmConfig C>
using HeadGapsEpilogue = Either<kPlan<C>.tma_store(), HeadPanelsEpilogue<C>, HeadStripsEpilogue<C>>;

}  // namespace finegemm::device
