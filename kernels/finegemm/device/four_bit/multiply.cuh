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
    __device__ FourBitMath(const FourBitParams& p, const FourBitShared& smem)
        : p_(p),
          smem_(smem),
          thread_(threadIdx.x % 128),
          block_(ptx::broadcast(threadIdx.x / 256)),
          codes_((threadIdx.x / 128 % 2 * 256 + thread_) * 16),
          of_rows_(kFourBitCodeBytes + threadIdx.x / 128 % 2 * 128 + thread_ / 4 * 4) {
        ptx::pin(codes_);  // else they are computed anew for each block
        ptx::pin(of_rows_);
    }

    __device__ void run() {
        for (FourBitTile tile = next(); tile.rows > 0; tile = next()) {
            if (tile.rows <= 16) multiply<16>(tile);
            else if (tile.rows <= 32) multiply<32>(tile);
            else multiply<kFourBitRows>(tile);
        }
    }

private:
    /// The loading warp tells with the first k-block of a tile which one it is. Shuffled: so the compiler knows that
    /// all lanes have the same, and has stages and descriptors in uniform registers.
    __device__ FourBitTile next() const {
        wait(smem_.full(at_.stage), at_.parity);
        const ptx::Words4 told = ptx::load_shared_words_x4(smem_.tile(at_.stage));
        return {ptx::broadcast(told.w[0]), ptx::broadcast(told.w[1]), ptx::broadcast(told.w[2]),
                ptx::broadcast(told.w[3])};
    }
    /// What the rest of a k-block waits for: its first half, decoded. Returns what belongs to this thread's rows.
    __device__ uint32_t begin_block(uint32_t (&first)[8]) const {
        wait(smem_.full(at_.stage), at_.parity);
        const SmemAddr b = smem_.b(at_.stage, block_);
        const uint32_t rows = ptx::load_shared_word(b + of_rows_);
        decode_half<C.codes, 0>(first, b + codes_, rows);
        return rows;
    }

    /// A tile of at most `Rows` rows: columns of A's product with the weights. Each half of a k-block is decoded while
    /// tensor cores multiply the one before it. Where the last block of B is missing, its warpgroups multiply what is
    /// there before and store nothing.
    template <uint32_t Rows>
    __device__ void multiply(const FourBitTile& tile) {
        constexpr uint32_t kHalf = kScaleBlock / 2 / 16;  // of K in a descriptor, which counts 16 bytes
        float sum[Rows / 2];
#pragma unroll
        for (uint32_t r = 0; r < Rows / 2; ++r) sum[r] = 0;
        uint32_t first[8], second[8], rows = begin_block(first), left = p_.k_blocks;
#pragma unroll 1
        for (bool more = true; more;) {
            const uint32_t stage = at_.stage, rows_now = rows, a = wgmma_descriptor_low(smem_.a(stage).bits);
            float product[Rows / 2];
            ptx::wgmma_fence();
            ptx::wgmma_k64_fp8_of_registers(product, first, a);
            ptx::wgmma_commit_group();
            decode_half<C.codes, 1>(second, smem_.b(stage, block_) + codes_, rows);
            ptx::wgmma_fence();
            ptx::add_wgmma_k64_fp8_of_registers(product, second, a + kHalf);
            ptx::wgmma_commit_group();
            ++at_;
            more = --left > 0;
            ptx::wgmma_wait_group<1>();
            if (more) rows = begin_block(first);
            const FactorsOf<Rows> factors(*this, stage, rows_now);
            ptx::wgmma_wait_group<0>();
#pragma unroll
            for (uint32_t r = 0; r < Rows / 2; ++r) {
                ptx::pin(product[r]);
                sum[r] = ptx::fma(product[r], factors.of(r), sum[r]);
            }
            __syncwarp();
            if (thread_ % kWarpSize < kLanesArrive)
                ptx::mbarrier_arrive_having(smem_.empty(stage), factors.bits_of_all());
        }
        store<Rows>(sum, tile);
    }

    /// What a product is multiplied with: products of scales of rows of A and of this thread's two rows of B, which
    /// share one where it is a block's.
    template <uint32_t Rows>
    struct FactorsOf {
        static constexpr uint32_t kRowsOfB = C.codes == FourBitCodes::Mxfp4 ? 1 : 2;
        float factor[kRowsOfB][Rows / 4];

        __device__ FactorsOf(const FourBitMath& math, uint32_t stage, uint32_t rows) {
            const SmemAddr scales = math.smem_.row_scales(stage) + math.thread_ % 4 * 8;
            float of_b[kRowsOfB] = {float_of_bits(rows << 16)};
            if (kRowsOfB == 1) of_b[0] = ptx::load_shared(math.smem_.block_scale(stage, math.block_));
            else of_b[kRowsOfB - 1] = float_of_bits(rows & 0xffff0000u);
#pragma unroll
            for (uint32_t i = 0; i < Rows / 8; ++i) {
                const ptx::Float2 of_a = ptx::load_shared_x2(scales + i * 32);
#pragma unroll
                for (uint32_t b = 0; b < kRowsOfB; ++b) {
                    factor[b][i * 2] = of_a.part[0] * of_b[b];
                    factor[b][i * 2 + 1] = of_a.part[1] * of_b[b];
                }
            }
        }
        /// All bits of the factors: known when every load that they are made of has come.
        __device__ uint32_t bits_of_all() const {
            uint32_t bits = 0;
#pragma unroll
            for (uint32_t i = 0; i < kRowsOfB * (Rows / 4); ++i)
                bits |= float_bits(factor[i / (Rows / 4)][i % (Rows / 4)]);
            return bits;
        }
        __device__ float of(uint32_t r) const { return factor[r % 4 / 2 % kRowsOfB][r / 4 * 2 + r % 2]; }
    };

    template <uint32_t Rows>
    __device__ void store(const float (&sum)[Rows / 2], const FourBitTile& tile) {
        const uint32_t warpgroup = ptx::broadcast(threadIdx.x / 128);  // anew: it has no register in the loop
        const uint32_t col = tile.n_tile * kFourBitCols + warpgroup * kSwappedCols;
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

    const FourBitParams& p_;
    const FourBitShared& smem_;
    uint32_t thread_, block_;   // block: of B in a stage
    uint32_t codes_, of_rows_;  // bytes of the block where this thread's codes begin, and what belongs to its rows
    RingCursor<kFourBitStages> at_ = RingCursor<kFourBitStages>::consumer();
};

}  // namespace finegemm::device
