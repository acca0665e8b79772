// SourceTileEpilogue: TMA loads the old D, which sums are added to in shared memory. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/epilogue/stack.cuh>
#include <finegemm/device/mma/mainloop.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Epilogue with a source: each math warp has TMA load its panels of the old D, adds its sums there and has TMA store
/// them; it waits for no other warp. L2 adds 1.23 TB/s to D, where memory could read and write 2.1 (docs/epilogues.md,
/// "F32").
template <GemmConfig C>
struct SourceTileEpilogue {
    static_assert(kPlan<C>.loads_source() && C.cluster == 1);
    static constexpr uint32_t kPanels = d_panels(C);

    const Params<C>& p;
    SmemAddr panels, full;
    uint32_t first_row;   // of this warp in a tile
    uint32_t parity = 0;  // of `full`

    __device__ SourceTileEpilogue(const Params<C>& params, const Shared<C>& smem, uint32_t = 0, uint32_t = 0)
        : p(params) {
        const uint32_t warp = ptx::broadcast(threadIdx.x / kWarpSize);
        panels = smem.d(warp);
        full = smem.d_full(warp);
        first_row = warp * kWarpRows;
    }

    /// Loads panel `i` of the old D, if D is accumulated to; panels come in order. They are free once TMA has read the
    /// previous tile, which is asked a k-block after that tile's store: so nobody waits.
    __device__ void load_source(const Tile& tile, uint32_t i) const {
        if (i == 0) {
            ptx::bulk_wait_read();
            __syncwarp();
        }
        if (!p.accumulate) return;
        if (i == 0) ptx::mbarrier_expect_tx_elected(full, kPanels * kF32PanelBytes);
        const SmemAddr to = panels + i * kF32PanelBytes;
        const uint32_t col = tile.col + i * kF32PanelCols, row = tile.row + first_row;
        load_panel(p, to, full, tile, col, row);
    }

    /// Loads up to `count` panels from panel `next` on.
    __device__ void load_source(const Tile& tile, uint32_t& next, uint32_t count) const {
        for (const uint32_t end = min(next + count, kPanels); next < end; ++next) load_source(tile, next);
    }

    __device__ void operator()(const Accumulator<C>& acc, const Tile& tile) {
        if (p.accumulate) {
            wait(full, parity);
            parity ^= 1;
            write<true>(acc.sum[0]);
        } else {
            write<false>(acc.sum[0]);
        }
        ptx::fence_proxy_async_shared();
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < kPanels; ++i) {
            const SmemAddr from = panels + i * kF32PanelBytes;
            const uint32_t col = tile.col + i * kF32PanelCols, row = tile.row + first_row;
            store_panel(p, 0, from, tile, col, row);
        }
        ptx::bulk_commit_group();
    }

private:
    /// Writes the sums to the panels; with `Add`, adds them to the old D there.
    template <bool Add>
    __device__ void write(const float (&sum)[C.tile_n / 2]) const {
        constexpr uint32_t kOddRow = 4;  // a lane that has an odd row
        const uint32_t lane = threadIdx.x % kWarpSize;
        const bool odd_row = f32_panel_register(lane, 0) != 0;
#pragma unroll
        for (uint32_t step = 0; step < C.tile_n / 2; ++step) {
            const float x = odd_row ? sum[f32_panel_register(kOddRow, step)] : sum[step];
            const SmemAddr to = panels + f32_panel_offset(wgmma_accumulator(lane, f32_panel_register(lane, step)));
            ptx::store_shared(to, Add ? ptx::add_ftz(ptx::load_shared(to), x) : x);
        }
    }
};

}  // namespace finegemm::device
