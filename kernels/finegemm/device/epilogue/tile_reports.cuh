// TileReports: what a scale warp tells the kernel behind this one of tiles that math warps have stored. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/pipeline/barriers.cuh>
#include <finegemm/device/ptx/report.cuh>

namespace finegemm::device {

/// Kernels without reports_rows have nothing of it. Math warps wait until what they have stored of a tile has landed
/// before they write the next one to shared memory, where it long has, and only then release a stage of the tile after
/// that. So a scale warp that has seen such a stage empty knows it of all of them, and adds the tile to the count of
/// its group: what makes all of it visible to other SMs takes half a microsecond, for which no math warp has time.
/// Tiles have more k-blocks than there are stages.
template <GemmConfig C>
class TileReports {
public:
    /// `tile`: whose scales are loaded from now on.
    __device__ void begin(const Params<C>& p, const Tile& tile) {
        if (C.reports_rows) before_last_ = last_, last_ = now_, now_ = word_of(p, tile);
    }
    /// After the stage of k-block `kb` was empty.
    __device__ void report_if_stored(const Params<C>& p, uint32_t kb) const {
        if (C.reports_rows && kb == C.stages) report(p, before_last_);
    }
    /// The last two tiles, when math warps have come to end_stores.
    __device__ void end(const Params<C>& p, uint32_t scale_warp) const {
        if (!C.reports_rows || scale_warp > 0) return;
        ptx::named_barrier_sync(kStoredBarrier, kThreads);
        report(p, last_);
        report(p, now_);
    }
    /// A warpgroup comes here before it releases stages of tiles that it has no rows of.
    __device__ static void await_stores() {
        if (C.reports_rows) ptx::bulk_wait();
    }
    /// All math warps come here.
    __device__ static void end_stores() {
        if (!C.reports_rows) return;
        ptx::bulk_wait();
        ptx::named_barrier_arrive(kStoredBarrier, kThreads);
    }

private:
    static constexpr uint32_t kThreads = C.math_warpgroups * 128 + kWarpSize;
    static_assert(C.tile_m * C.tile_n / 8 < 1u << 16);

    /// Its pieces, and its group in the upper half; 0: there is none.
    __device__ static uint32_t word_of(const Params<C>& p, const Tile& tile) {
        uint32_t cols = 0;
#pragma unroll
        for (uint32_t i = 0; i < n_segments(C); ++i)
            cols += existing_rows(segment_col(C, p.raster, tile.col, i), segment_cols(C, i), p.n);
        return tile.group << 16 | tile.rows * (cols / 8);
    }
    __device__ static void report(const Params<C>& p, uint32_t word) {
        if ((word & 0xffffu) > 0 && threadIdx.x % kWarpSize == 0)
            ptx::add_release(stored_by(static_cast<const KernelParams<C>&>(p)) + (word >> 16), word & 0xffffu);
        __syncwarp();
    }

    uint32_t before_last_ = 0, last_ = 0, now_ = 0;
};

}  // namespace finegemm::device
