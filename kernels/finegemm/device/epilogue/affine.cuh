// AffineEpilogue: D = alpha * sums + beta * C + bias, in FP32, rounded once to the type of D. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/epilogue/source_tile.cuh>
#include <finegemm/device/epilogue/store_bf16.cuh>

namespace finegemm::device {

/// Loads a panel of C by TMA, by one lane of a converged warp.
__device__ inline void load_c_panel(const SegmentedParams&, const TensorMap* c, SmemAddr to, SmemAddr full, const Tile&,
                                    uint32_t col, uint32_t row) {
    ptx::tma_load_elected(to, c, full, col, row);
}
__device__ inline void load_c_panel(const GroupedParams& p, const TensorMap* c, SmemAddr to, SmemAddr full,
                                    const Tile& tile, uint32_t col, uint32_t row) {
    ptx::tma_load_elected(to, c, full, col, row, matrix_of(p, tile));
}

/// Stores f32 panels of this warp's rows; of a group's last rows, as TMA's box would write rows of the next group, too,
/// the warp copies them.
template <GemmConfig C>
__device__ void store_f32_panels(const SegmentedParams& p, SmemAddr panels, const Tile& tile, uint32_t offset) {
#pragma unroll
    for (uint32_t i = 0; i < d_panels(C); ++i)
        store_panel(p, 0, panels + i * kF32PanelBytes, tile, tile.col + i * kF32PanelCols, tile.row + offset);
}
template <GemmConfig C>
__device__ void store_f32_panels(const GroupedParams& p, SmemAddr panels, const Tile& tile, uint32_t offset) {
    const uint32_t rows = existing_rows(offset, kWarpRows, tile.rows);
    if (rows == kWarpRows) {
#pragma unroll
        for (uint32_t i = 0; i < d_panels(C); ++i)
            store_panel(p, 0, panels + i * kF32PanelBytes, tile, tile.col + i * kF32PanelCols, tile.row + offset);
        return;
    }
    constexpr uint32_t kPieces = C.tile_n / 4;  // of 16 bytes
    float* const d =
        static_cast<float*>(p.d_data) + matrix_of(p, tile) * p.d_stride + (tile.row + offset) * p.d_row_stride;
#pragma unroll 1
    for (uint32_t i = threadIdx.x % kWarpSize; i < rows * kPieces; i += kWarpSize) {
        const RowCol at = {.row = i / kPieces, .col = i % kPieces * 4};
        ptx::store_global_x4_if(tile.col + at.col < p.n, d + at.row * p.d_row_stride + tile.col + at.col,
                                ptx::load_shared_words_x4(panels + f32_panel_offset(at)));
    }
}

/// TMA loads a warp's panels of C to where it will store D from; the warp then turns sums into elements of D in
/// registers. Without C nothing is loaded. A panel may have rows of C that belong to the next group: the sums there are
/// not stored.
template <GemmConfig C>
struct AffineEpilogue {
    static_assert(kPlan<C>.loads_source() && C.cluster == 1 && C.wgmmas_m() == 1 && C.k_slices() == 1);
    static_assert(cols_through_shared(C) == C.tile_n && (C.output != Output::F32 || n_segments(C) == 1));
    static constexpr bool kF32 = C.output == Output::F32;
    static constexpr uint32_t kBytes = kWarpRows * C.tile_n * bytes_of(C.output);

    const KernelParams<C>& p;
    const Shared<C>& smem;
    SmemAddr panels, full;
    uint32_t first_row;   // of this warp in a tile
    uint32_t parity = 0;  // of `full`

    __device__ AffineEpilogue(const Params<C>& params, const Shared<C>& shared, uint32_t = 0, uint32_t = 0)
        : p(static_cast<const KernelParams<C>&>(params)), smem(shared) {
        const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
        panels = smem.d(warp);
        full = smem.d_full(warp);
        first_row = warp * kWarpRows;
    }

    /// Loads up to `count` panels of C from panel `next` on. They are free once TMA has read the previous tile, which
    /// is asked a k-block after that tile's store: so nobody waits.
    __device__ void load_source(const Tile& tile, uint32_t& next, uint32_t count) const {
        const uint32_t end = min(next + count, d_panels(C));
        if (next == end) return;
        if (next == 0) {
            ptx::bulk_wait_read();
            __syncwarp();
            if (p.finish.adds_c) ptx::mbarrier_expect_tx_elected(full, kBytes);
        }
#pragma unroll
        for (uint32_t i = 0; i < d_panels(C); ++i)
            if (p.finish.adds_c && next <= i && i < end) load_panel<C>(tile, i);
        next = end;
    }

    __device__ void operator()(Accumulator<C>& acc, const Tile& tile) {
        if (p.finish.adds_c) {
            wait(full, parity);
            parity ^= 1;
        }
        if constexpr (kF32) {
            if (p.finish.adds_c) finish_f32<true>(acc.sum[0], tile);
            else finish_f32<false>(acc.sum[0], tile);
            write_f32(acc.sum[0]);
            ptx::fence_proxy_async_shared();
            __syncwarp();
            store_f32_panels<C>(p, panels, tile, first_row);
            ptx::bulk_commit_group();
        } else {
            if (p.finish.adds_c) finish_halves<true, 0>(acc.sum[0], tile);
            else finish_halves<false, 0>(acc.sum[0], tile);
            store_tile<C>(p, acc, smem, tile);
        }
    }

private:
    template <GemmConfig Config>
    __device__ void load_panel(const Tile& tile, uint32_t i) const {
        const uint32_t row = tile.row + first_row;
        if (kF32) {
            const uint32_t col = tile.col + i * kF32PanelCols;
            load_c_panel(p, &p.finish.c[0], panels + i * kF32PanelBytes, full, tile, col, row);
        } else {
            const DPanel panel = d_panel(Config, i);
            load_c_panel(p, &p.finish.c[panel.width], panels + kWarpRows * panel.first * 2, full, tile,
                         panel_col<Config>(p, tile, panel), row);
        }
    }

    /// The biases of two neighbouring columns; -0, which changes no sum, where there are none.
    __device__ ptx::Float2 bias_of(uint32_t col) const {
        if (!p.finish.bias || col >= p.n) return {{-0.0f, -0.0f}};
        return ptx::load_global_x2(p.finish.bias + col);
    }

    /// Each step rounds to FP32. Without C the second one is left out: 0 * C could be NaN, and -0 + 0 is not -0.
    template <bool AddsC>
    __device__ float finished(float sum, float c, float bias) const {
        const float scaled = ptx::multiply(p.finish.alpha, sum);
        return ptx::add(AddsC ? ptx::fma(p.finish.beta, c, scaled) : scaled, bias);
    }
    template <bool AddsC>
    __device__ void finish(float& low, float& high, ptx::Float2 c, ptx::Float2 bias) const {
        low = finished<AddsC>(low, c.part[0], bias.part[0]);
        high = finished<AddsC>(high, c.part[1], bias.part[1]);
    }

    /// Two elements of C in a word.
    __device__ static ptx::Float2 unpacked(uint32_t word) {
        return C.output == Output::F16 ? ptx::unpack_f16(word)
                                       : ptx::Float2{{float_of_bits(word << 16), float_of_bits(word & 0xffff0000)}};
    }

    /// The sums of `Panel` and of the panels after it, in types of two bytes: ldmatrix reads of C what stmatrix will
    /// write of D.
    template <bool AddsC, uint32_t Panel>
    __device__ void finish_halves(float (&sum)[C.tile_n / 2], const Tile& tile) const {
        constexpr DPanel kPanel = d_panel(C, Panel);
        constexpr uint32_t kCols = panel_width(kPanel.width);
        const uint32_t lane = threadIdx.x % kWarpSize, col = panel_col<C>(p, tile, kPanel) + lane % 4 * 2;
#pragma unroll
        for (uint32_t pair = 0; pair < kCols / 16; ++pair) {
            ptx::Words4 c{};
            if (AddsC)
                c = ptx::ldmatrix_x4(panels + kWarpRows * kPanel.first * 2 +
                                     panel_offset(kCols, stmatrix_piece(lane, pair)));
            float* r = &sum[kPanel.first / 2 + pair * 8];
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {  // of eight columns
                const ptx::Float2 bias = bias_of(col + pair * 16 + half * 8);
                finish<AddsC>(r[half * 4], r[half * 4 + 1], unpacked(c.w[half * 2]), bias);
                finish<AddsC>(r[half * 4 + 2], r[half * 4 + 3], unpacked(c.w[half * 2 + 1]), bias);
            }
        }
        if constexpr (Panel + 1 < d_panels(C)) finish_halves<AddsC, Panel + 1>(sum, tile);
    }

    template <bool AddsC>
    __device__ void finish_f32(float (&sum)[C.tile_n / 2], const Tile& tile) const {
        const uint32_t lane = threadIdx.x % kWarpSize;
#pragma unroll
        for (uint32_t r = 0; r < C.tile_n / 2; r += 4) {
            const ptx::Float2 bias = bias_of(tile.col + wgmma_accumulator(lane, r).col);
#pragma unroll
            for (uint32_t i = r; i < r + 4; i += 2) {
                ptx::Float2 c{};
                if (AddsC) c = ptx::load_shared_x2(panels + f32_panel_offset(wgmma_accumulator(lane, i)));
                finish<AddsC>(sum[i], sum[i + 1], c, bias);
            }
        }
    }
    __device__ void write_f32(const float (&sum)[C.tile_n / 2]) const {
        const uint32_t lane = threadIdx.x % kWarpSize;
#pragma unroll
        for (uint32_t r = 0; r < C.tile_n / 2; r += 2)
            ptx::store_shared_x2(panels + f32_panel_offset(wgmma_accumulator(lane, r)), sum[r], sum[r + 1]);
    }
};

}  // namespace finegemm::device
