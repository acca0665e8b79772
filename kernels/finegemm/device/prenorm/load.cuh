// The warps around the product: one that loads A and B, those that split B, and one that stores zeros. Layer device.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/device/prenorm/shared.cuh>
#include <finegemm/device/prenorm/store.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Loads the blocks of all items, by a converged warp. The first round needs no barrier but those that it makes.
template <PrenormConfig C>
class PrenormLoader {
public:
    __device__ PrenormLoader(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank)
        : p_(p), smem_(smem), items_(p, rank) {
        if (items_.any()) enter();
    }

    __device__ void first_round() {
#pragma unroll 1
        for (uint32_t stage = 0; stage < C.stages() && items_.any(); ++stage) load();
    }
    __device__ void rest() {
        while (items_.any()) {
            wait(smem_.empty(at_.stage), at_.parity);
            __syncwarp();  // lanes that left the wait one by one would each be elected
            load();
        }
    }

private:
    __device__ void enter() {
        row_ = items_.tile() * C.rows;
        first_ = items_.first();
        left_ = items_.count();
    }
    __device__ void load() {
        const SmemAddr loaded = smem_.loaded(at_.stage);
        ptx::mbarrier_expect_tx_elected(loaded, PrenormShared<C>::kAt.stage_bytes);
        ptx::tma_load_elected(smem_.b(at_.stage), &p_.b, loaded, 0, 0, first_ * (C.blocks() * 2));
        ptx::tma_load_elected(smem_.a(at_.stage), &p_.a, loaded, 0, row_, first_ * C.blocks(), p_.a_policy);
        ++at_;
        ++first_;
        if (--left_ > 0) return;
        items_.next();
        if (items_.any()) enter();
    }

    const PrenormParams& p_;
    const PrenormShared<C>& smem_;
    PrenormItems items_;
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::producer();
    uint32_t row_ = 0, first_ = 0, left_ = 0;  // stages of the item
};

/// Slices that become zero, by a warp of each CTA: eight lanes have a row.
__device__ inline void store_zeros(const PrenormParams& p) {
    const uint32_t lane = threadIdx.x % kWarpSize, col = lane % 8 * 4;
    uint64_t row = blockIdx.x * 4 + lane / 8;
    for (uint32_t slice = p.real_slices.divisor; slice < p.slices; ++slice, row -= p.rows)
        for (; row < p.rows; row += uint64_t{gridDim.x} * 4) {
            if (col < p.cols) store_four(p, p.d + slice * p.d_slice_stride + row * p.d_row_stride + col, {});
            if (col == 0) ptx::store_global(p.squares + slice * p.squares_stride + row, 0.0f);
        }
}

/// Four elements of B as bf16: the first half of each pair, then the second.
struct PrenormFour {
    uint32_t first[2], second[2];

    /// `probe` becomes NaN where an element is not finite; then the second halves are those of `of_any`.
    __device__ static PrenormFour of_finite(const ptx::Words4& f32, float& probe) {
        float x[4], rest[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            x[i] = ptx::tf32_of(float_of_bits(f32.w[i]));
            rest[i] = ptx::add(x[i], -float_of_bits(float_bits(x[i]) & 0xffff0000u));
            probe = ptx::fma(rest[i], 0.0f, probe);
        }
        return of_bits(x, rest);
    }
    __device__ static PrenormFour of_any(const ptx::Words4& f32) {
        float x[4], rest[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            x[i] = ptx::tf32_of(float_of_bits(f32.w[i]));
            rest[i] = float_of_bits(pair_of_tf32(x[i]).second);
        }
        return of_bits(x, rest);
    }

private:
    __device__ static PrenormFour of_bits(const float (&x)[4], const float (&rest)[4]) {
        PrenormFour four;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            four.first[i] = ptx::high_halves(float_bits(x[2 * i]), float_bits(x[2 * i + 1]));
            four.second[i] = ptx::high_halves(float_bits(rest[2 * i]), float_bits(rest[2 * i + 1]));
        }
        return four;
    }
};

/// Splits four rows of B in a stage into as many bf16 twice, in the same place; by a warp, which reads all before it
/// writes.
template <PrenormConfig C>
__device__ void split_b(SmemAddr b, const PrenormPiece& at) {
    constexpr uint32_t kFours = C.blocks() * 2;
    ptx::Words4 f32[kFours];
    PrenormFour four[kFours];
    float probe = 0;
#pragma unroll
    for (uint32_t i = 0; i < kFours; ++i)
        f32[i] = ptx::load_shared_words_x4(b + (i / 2 * prenorm_b_bytes(C) + prenorm_b_f32(C.cols, at, i % 2)));
#pragma unroll
    for (uint32_t i = 0; i < kFours; ++i) {
        float of_four = 0;
        four[i] = PrenormFour::of_finite(f32[i], of_four);
        probe = ptx::add(probe, of_four);
    }
    if (!(probe == 0)) {
#pragma unroll
        for (uint32_t i = 0; i < kFours; ++i) four[i] = PrenormFour::of_any(f32[i]);
    }
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < kFours; i += 2) {
        const SmemAddr block = b + i / 2 * prenorm_b_bytes(C);
        const PrenormFour &low = four[i], &high = four[i + 1];
        ptx::store_shared_words_x4(block + prenorm_b_bf16(C.cols, at, 0),
                                   {{low.first[0], low.first[1], high.first[0], high.first[1]}});
        ptx::store_shared_words_x4(block + prenorm_b_bf16(C.cols, at, 1),
                                   {{low.second[0], low.second[1], high.second[0], high.second[1]}});
    }
}

/// One of the splitting warps. A place in the ring is always the same crew's: loads come in any order, and a crew that
/// took a place from another could be a round ahead of it, and take the phase before for its own.
template <PrenormConfig C>
__device__ void split_stages(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank, uint32_t warp) {
    const uint32_t crew = warp / C.splitters();
    const PrenormPiece piece = prenorm_piece(warp % C.splitters(), threadIdx.x % kWarpSize);
    RingCursor<C.stages()> at = RingCursor<C.stages()>::consumer();
    for (PrenormItems items(p, rank); items.any(); items.next())
        for (uint32_t left = items.count(); left > 0; --left, ++at) {
            if (at.stage % C.crews() != crew) continue;
            wait(smem.loaded(at.stage), at.parity);
            split_b<C>(smem.b(at.stage), piece);
            ptx::fence_proxy_async_shared();  // tensor cores read what was stored
            arrive_of_warp(smem.split(at.stage));
        }
}

}  // namespace finegemm::device
