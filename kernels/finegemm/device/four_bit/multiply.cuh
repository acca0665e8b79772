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
          block_(ptx::broadcast(threadIdx.x / 256)),
          codes_((threadIdx.x / 128 % 2 * 256 + thread_) * 16),
          of_rows_(kFourBitCodeBytes + threadIdx.x / 128 % 2 * 128 + thread_ / 4 * 4) {
        if (!C.many()) ptx::pin(codes_);  // else computed anew for each block; many rows leave no register
        ptx::pin(of_rows_);
    }

    __device__ void run() {
        for (FourBitTile tile = next(); tile.rows > 0; tile = next()) {
            if (tile.rows <= 16) multiply<16>(tile);
            else if (tile.rows <= 32) multiply<32>(tile);
            else if (!C.many() || tile.rows <= 48) multiply<48>(tile);
            else if (tile.rows <= 64) multiply<64>(tile);
            else if (tile.rows <= 96) multiply<96>(tile);
            else if (tile.rows <= 128) multiply<128>(tile);
            else multiply<128, 2>(tile);
        }
    }

private:
    /// Rows of B of a thread that have scales of their own.
    static constexpr uint32_t kRowsOfB = C.codes == FourBitCodes::Mxfp4 ? 1 : 2;

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

    /// A tile of at most `Parts` times `Rows` rows: columns of A's product with the weights, a part after the other.
    /// Each half of a k-block is decoded while tensor cores multiply the one before it. Where the last block of B is
    /// missing, its warpgroups multiply what is there before and store nothing.
    template <uint32_t Rows, uint32_t Parts = 1>
    __device__ void multiply(const FourBitTile& tile) {
        constexpr uint32_t kHalf = kScaleBlock / 2 / 16, kPart = Rows * kScaleBlock / 16;  // descriptors count 16 bytes
        float sum[Parts][Rows / 2];
#pragma unroll
        for (uint32_t part = 0; part < Parts; ++part)
#pragma unroll
            for (uint32_t r = 0; r < Rows / 2; ++r) sum[part][r] = 0;
        uint32_t first[8], second[8], rows = begin_block(first), left = p_.k_blocks;
#pragma unroll 1
        for (bool more = true; more;) {
            const uint32_t stage = at_.stage, parity = at_.parity, rows_now = rows;
            const uint32_t a = wgmma_descriptor_low(smem_.a(stage).bits);
            uint32_t loaded = 0;
#pragma unroll
            for (uint32_t part = 0; part < Parts; ++part) {
                float product[Rows / 2];
                ptx::wgmma_fence();
                ptx::wgmma_k64_fp8_of_registers(product, first, a + part * kPart);
                ptx::wgmma_commit_group();
                if (part == 0) decode_half<C.codes, 1>(second, smem_.b(stage, block_) + codes_, rows);
                ptx::wgmma_fence();
                ptx::add_wgmma_k64_fp8_of_registers(product, second, a + part * kPart + kHalf);
                ptx::wgmma_commit_group();
                if (part == Parts - 1) {
                    ++at_;
                    more = --left > 0;
                    ptx::wgmma_wait_group<1>();
                    if (more) rows = begin_block(first);
                }
                if (part == 0) wait(smem_.scaled(stage), parity);
                loaded |= add_scaled<Rows>(sum[part], product, part * Rows, stage, rows_now);
            }
            __syncwarp();
            if (thread_ % kWarpSize < kLanesArrive) ptx::mbarrier_arrive_having(smem_.empty(stage), loaded);
        }
        store<Rows, Parts>(sum, tile);
    }
    /// Adds the product once it is there. Its first factors wait for it, the others have no registers before. Returns
    /// bits that are known when all that they are made of has been loaded.
    template <uint32_t Rows>
    __device__ uint32_t add_scaled(float (&sum)[Rows / 2], float (&product)[Rows / 2], uint32_t row, uint32_t stage,
                                   uint32_t rows_of_b) const {
        constexpr uint32_t kAtOnce = Rows <= 48 ? Rows : 32;
        uint32_t loaded = 0;
#pragma unroll
        for (uint32_t first = 0; first < Rows; first += kAtOnce) {
            const FactorsOf<kAtOnce> factors(*this, row + first, stage, rows_of_b);
            if (first == 0) ptx::wgmma_wait_group<0>();
#pragma unroll
            for (uint32_t i = 0; i < kAtOnce / 2; ++i) {
                const uint32_t r = first / 2 + i;
                ptx::pin(product[r]);
                sum[r] = ptx::fma(product[r], factors.of(i), sum[r]);
            }
            loaded |= factors.bits_of_all();
        }
        return loaded;
    }

    /// What a product is multiplied with: products of scales of rows of A and of this thread's two rows of B. Those of
    /// a block of B are in the former already.
    template <uint32_t Rows>
    struct FactorsOf {
        float factor[kRowsOfB][Rows / 4];

        __device__ FactorsOf(const FourBitMath& math, uint32_t row, uint32_t stage, uint32_t rows_of_b) {
            const uint32_t set = C.scale_sets() > 1 ? math.block_ : 0;
            const SmemAddr scales = math.smem_.row_scales(stage, set) + C.scale_place(row + math.thread_ % 4 * 2) * 4;
#pragma unroll
            for (uint32_t i = 0; i < Rows / 4; i += 4) {
                const ptx::Float4 of_a = ptx::load_shared_x4(scales + i * 4);
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j) {
                    factor[0][i + j] = of_a.part[j];
                    if (kRowsOfB == 1) continue;
                    factor[0][i + j] *= float_of_bits(rows_of_b << 16);
                    factor[kRowsOfB - 1][i + j] = of_a.part[j] * float_of_bits(rows_of_b & 0xffff0000u);
                }
            }
        }
        /// Bits of factors: known when every load that all are made of has come, as four of A come at once.
        __device__ uint32_t bits_of_all() const {
            uint32_t bits = 0;
#pragma unroll
            for (uint32_t i = 0; i < Rows / 4; i += 4) bits |= float_bits(factor[0][i]);
            return bits;
        }
        __device__ float of(uint32_t r) const { return factor[r % 4 / 2 % kRowsOfB][r / 4 * 2 + r % 2]; }
    };

    /// Rows of D, as many at once as a strip has.
    template <uint32_t Rows, uint32_t Parts>
    __device__ void store(const float (&sum)[Parts][Rows / 2], const FourBitTile& tile) {
        constexpr uint32_t kStrip = Rows < C.strip_rows() ? Rows : Rows % C.strip_rows() == 0 ? C.strip_rows() : 32;
        const uint32_t warpgroup = ptx::broadcast(threadIdx.x / 128);  // anew: it has no register in the loop
        const uint32_t col = tile.n_tile * C.cols() + warpgroup * kSwappedCols;
        uint16_t* const d = p_.d + tile.matrix * p_.d_stride + tile.row * p_.d_row_stride + col;
        const SmemAddr strip = smem_.d(warpgroup);
        const RowCol at = swapped_piece(thread_, 0);
#pragma unroll
        for (uint32_t first = 0; first < Parts * Rows; first += kStrip) {
            ptx::named_barrier_sync(1 + warpgroup, 128);  // all warps have read what the strip had before
#pragma unroll
            for (uint32_t i = 0; i < kStrip; i += 16) {
                const float* const r = &sum[first / Rows][(first % Rows + i) / 2];
                ptx::stmatrix_x4_transposed(
                    strip + panel_offset(kSwappedCols, stmatrix_transposed_piece(thread_, i / 16)),
                    ptx::pack_bf16(r[0], r[1]), ptx::pack_bf16(r[2], r[3]), ptx::pack_bf16(r[4], r[5]),
                    ptx::pack_bf16(r[6], r[7]));
            }
            ptx::named_barrier_sync(1 + warpgroup, 128);
#pragma unroll
            for (uint32_t i = 0; i < kStrip; i += 16)
                // N is a multiple of 8: a piece exists or it does not.
                ptx::store_global_x4_if(
                    first + i + at.row < tile.rows && col + at.col < p_.n,
                    d + (first + i + at.row) * p_.d_row_stride + at.col,
                    ptx::load_shared_words_x4(strip + panel_offset(kSwappedCols, {i + at.row, at.col})));
        }
    }

    const FourBitParams& p_;
    const FourBitShared<C>& smem_;
    uint32_t thread_, block_;   // block: of B in a stage
    uint32_t codes_, of_rows_;  // bytes of the block where this thread's codes begin, and what belongs to its rows
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::consumer();
};

}  // namespace finegemm::device
