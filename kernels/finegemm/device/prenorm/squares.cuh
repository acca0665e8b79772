// The squaring warps: sums of squares of all rows of a tile. Layer device.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/device/prenorm/parts.cuh>
#include <finegemm/device/ptx/fragment.cuh>

namespace finegemm::device {

/// Two threads have a row of each 64: one the first 32 columns of a block, one the others.
template <PrenormConfig C>
class PrenormSquares {
public:
    __device__ PrenormSquares(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank, uint32_t thread)
        : p_(p), smem_(smem), rank_(rank), row_(thread / 2), half_(thread % 2) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) chunk_[i] = swizzled(row_ * 128 + (half_ * 4 + i) * 16, Swizzle::B128);
    }

    __device__ void run() {
        uint32_t parity = 0;
        PrenormParts64<C>::wait_for_cluster(p_);
        for (PrenormItems items(p_, rank_); items.any(); items.next(), parity ^= 1) {
            float sums[C.warpgroups()][2] = {};
            add_part(sums, items.count());
#pragma unroll
            for (uint32_t i = 0; i < C.warpgroups(); ++i) {
                const PrenormParts64<C> parts(p_, smem_, rank_, i);
                parts.begin(parity);
                parts.send(row_, C.cols + half_ * 2, sums[i][0], sums[i][1]);
                parts.sent();
            }
        }
    }

private:
    __device__ void add_part(float (&sums)[C.warpgroups()][2], uint32_t stages) {
#pragma unroll 1
        for (; stages > 0; --stages, ++at_) {
            wait(smem_.loaded(at_.stage), at_.parity);
#pragma unroll
            for (uint32_t block = 0; block < C.blocks(); ++block)
#pragma unroll
                for (uint32_t i = 0; i < C.warpgroups(); ++i)
                    add_block(sums[i], smem_.a(at_.stage) + (block * C.warpgroups() + i) * kPrenormRowsBytes);
            arrive_of_warp(smem_.empty(at_.stage));
        }
    }
    __device__ void add_block(float (&sums)[2], SmemAddr rows) const {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const ptx::Words4 eight = ptx::load_shared_words_x4(rows + chunk_[i]);
#pragma unroll
            for (const uint32_t two : eight.w) {
                const float even = float_of_bits(two << 16), odd = float_of_bits(two & 0xffff0000u);
                sums[0] = ptx::fma(even, even, sums[0]);
                sums[1] = ptx::fma(odd, odd, sums[1]);
            }
        }
    }

    const PrenormParams& p_;
    const PrenormShared<C>& smem_;
    uint32_t rank_, row_, half_, chunk_[4];
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::consumer();
};

}  // namespace finegemm::device
