// From accumulators to D: through a slab in shared memory and TMA. Layer device.
// Each math warpgroup has a slab and a barrier of its own; its store runs under its next tile's first multiplications.
#pragma once

#include <finegemm/core/params.h>
#include <finegemm/core/tma_box.h>
#include <finegemm/device/mainloop.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

template <GemmConfig C>
__device__ void store_tile(const GemmParams& p, const Accumulator<C>& acc, const Shared<C>& smem, TileCoord tile) {
    const uint32_t warpgroup = threadIdx.x / 128;
    const bool issues = threadIdx.x % 128 == 0;
    const SmemAddr slab = smem.d(warpgroup);
#pragma unroll
    for (uint32_t i = 0; i < C.wgmmas_m(); ++i) {
        const uint32_t row = tile.m * C.tile_m + warpgroup * C.rows_per_warpgroup() + i * 64;
#pragma unroll
        for (uint32_t col = 0; col < C.tile_n; col += C.slab_n) {
            if (issues) ptx::tma_store_wait_read();  // the slab's last store must have read it
            warpgroup_barrier(warpgroup);
#pragma unroll
            for (uint32_t pair = 0; pair < C.slab_n / 16; ++pair) {
                const float* r = &acc.sum[i][col / 2 + pair * 8];
                ptx::stmatrix_x4(slab + slab_offset(C, stmatrix_piece(threadIdx.x % 128, pair)),
                                 ptx::pack_bf16(r[0], r[1]), ptx::pack_bf16(r[2], r[3]), ptx::pack_bf16(r[4], r[5]),
                                 ptx::pack_bf16(r[6], r[7]));
            }
            // TMA reads through the async proxy: without the fence it could send the previous contents of the slab.
            ptx::fence_proxy_async_shared();
            warpgroup_barrier(warpgroup);
            if (issues) {
                for (uint32_t c = 0; c < C.slab_n; c += d_box_cols(C))
                    ptx::tma_store(&p.d, slab + c / d_box_cols(C) * d_box_bytes(C), tile.n * C.tile_n + col + c, row);
                ptx::tma_store_commit();
            }
        }
    }
}

}  // namespace finegemm::device
