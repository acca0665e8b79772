// The math warpgroups of products with weights of 4 bits, which are wgmma's A, from registers. Layer device.
#pragma once

#include <finegemm/core/fp8.h>
#include <finegemm/core/fragment.h>
#include <finegemm/core/ring.h>
#include <finegemm/gemm/roles.h>
#include <finegemm/gemm/store_layout.h>
#include <finegemm/device/four_bit/decode.cuh>
#include <finegemm/device/four_bit/shared.cuh>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

template <FourBitConfig C>
class FourBitMath {
public:
    __device__ FourBitMath(const FourBitParams& p, const FourBitShared<C>& smem)
        : p_(p),
          smem_(smem),
          thread_(threadIdx.x % 128),
          warpgroup_(ptx::broadcast(threadIdx.x / 128)) {}

    __device__ void run() {
        for (FourBitTile tile = next(); tile.rows > 0; tile = next()) {
            if (tile.rows <= 16) multiply<16>(tile);
            else if (tile.rows <= 32) multiply<32>(tile);
            else multiply<48>(tile);
        }
    }

private:
    /// The loading warp tells with the first k-block of a tile which one it is.
    __device__ FourBitTile next() const {
        wait(smem_.full(at_.stage), at_.parity);
        const ptx::Words4 told = ptx::load_shared_words_x4(smem_.tile(at_.stage));
        return {told.w[0], told.w[1], told.w[2], told.w[3]};
    }
    /// A tile of at most `Rows` rows: columns of A's product with the weights.
    template <uint32_t Rows>
    __device__ void multiply(const FourBitTile& tile) {
        float sum[Rows / 2];
#pragma unroll
        for (uint32_t r = 0; r < Rows / 2; ++r) sum[r] = 0;
#pragma unroll 1
        for (uint32_t left = p_.k_blocks; left > 0; --left, ++at_) {
            wait(smem_.full(at_.stage), at_.parity);
            const SmemAddr b = smem_.b(at_.stage);
            const uint32_t rows = ptx::load_shared_word(b + row_place());
            uint32_t a[16];
            decode_block<C.codes>(a, b + (warpgroup_ * 256 + thread_) * 16, rows);
            float product[Rows / 2];
            ptx::wgmma_fence();
            ptx::wgmma_k128_fp8_of_registers(product, a, wgmma_descriptor(smem_.a(at_.stage).bits));
            ptx::wgmma_commit_group();
            promote<Rows>(sum, product, b, rows);
            __syncwarp();
            if (threadIdx.x % kWarpSize < kLanesArrive) ptx::mbarrier_arrive(smem_.empty(at_.stage));
        }
        store<Rows>(sum, tile);
    }

    /// sum += product * factors, which are computed while tensor cores multiply.
    template <uint32_t Rows>
    __device__ void promote(float (&sum)[Rows / 2], float (&product)[Rows / 2], SmemAddr b, uint32_t rows) {
        float upper, lower;
        if constexpr (C.codes == FourBitCodes::Mxfp4) {
            upper = lower = ptx::load_shared(b + kFourBitScalePlace);
        } else {
            upper = float_of_bits(rows << 16);
            lower = float_of_bits(rows & 0xffff0000u);
        }
        const SmemAddr scales = smem_.sfa(at_.stage) + thread_ % 4 * 8;
        ptx::Float2 of_rows[Rows / 8];
#pragma unroll
        for (uint32_t i = 0; i < Rows / 8; ++i) of_rows[i] = ptx::load_shared_x2(scales + i * 32);
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (uint32_t r = 0; r < Rows / 2; ++r) {
            ptx::pin(product[r]);
            sum[r] = ptx::fma(product[r], of_rows[r / 4].part[r % 2] * (r % 4 < 2 ? upper : lower), sum[r]);
        }
    }

    template <uint32_t Rows>
    __device__ void store(const float (&sum)[Rows / 2], const FourBitTile& tile) {
        const uint32_t warpgroup = ptx::broadcast(threadIdx.x / 128);  // anew: it has no register in the loop
        const uint32_t col = tile.n_block * kFourBitCols + warpgroup * kSwappedCols;
        uint16_t* const d = p_.d + tile.matrix * p_.d_stride + tile.row * p_.d_row_stride + col;
        const SmemAddr strip = smem_.d(warpgroup);
        const RowCol at = swapped_piece(thread_, 0);
#pragma unroll
        for (uint32_t first = 0; first < Rows; first += kFourBitBoxRows) {
            const float* const r = &sum[first / 2];
            ptx::named_barrier_sync(1 + warpgroup, 128);  // all warps have read what the strip had before
            ptx::stmatrix_x4_transposed(strip + panel_offset(kSwappedCols, stmatrix_transposed_piece(thread_, 0)),
                                        ptx::pack_bf16(r[0], r[1]), ptx::pack_bf16(r[2], r[3]),
                                        ptx::pack_bf16(r[4], r[5]), ptx::pack_bf16(r[6], r[7]));
            ptx::named_barrier_sync(1 + warpgroup, 128);
            // N is a multiple of 8: a piece exists or it does not.
            ptx::store_global_x4_if(first + at.row < tile.rows && col + at.col < p_.n,
                                    d + (first + at.row) * p_.d_row_stride + at.col,
                                    ptx::load_shared_words_x4(strip + panel_offset(kSwappedCols, at)));
        }
    }

    /// Of this thread's two rows.
    __device__ uint32_t row_place() const {
        return four_bit_row_place(0) + warpgroup_ * 128 + thread_ / 4 * 4;
    }

    const FourBitParams& p_;
    const FourBitShared<C>& smem_;
    uint32_t thread_, warpgroup_;
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::consumer();
};

}  // namespace finegemm::device
