// What brings A and B to shared memory: one thread that loads, and warps that split B. Layer device.
#pragma once

#include <finegemm/core/ring.h>
#include <finegemm/device/prenorm/shared.cuh>
#include <finegemm/device/prenorm/store.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// Loads the blocks of all items, by one thread. The first round needs no barrier but those that it makes.
template <PrenormConfig C>
class PrenormLoader {
public:
    __device__ PrenormLoader(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank)
        : p_(p), smem_(smem), items_(p, rank) {
        if (items_.any()) enter();
    }

    __device__ void first_round() {
        for (uint32_t stage = 0; stage < C.stages() && items_.any(); ++stage) load();
    }
    __device__ void rest() {
        while (items_.any()) {
            wait(smem_.empty(at_.stage), at_.parity);
            load();
        }
    }

private:
    __device__ void enter() {
        row_ = items_.tile() * C.rows;
        block_ = items_.first_block();
        left_ = items_.blocks();
    }
    __device__ void load() {
        const SmemAddr loaded = smem_.loaded(at_.stage), b = smem_.b(at_.stage);
        const uint32_t k = block_ * kPrenormBlock;
        ptx::mbarrier_arrive_expect_tx(loaded, PrenormShared<C>::kAt.stage_bytes);
        ptx::tma_load(b, &p_.b, loaded, k, 0);
        ptx::tma_load(b + C.cols * 128, &p_.b, loaded, k + 32, 0);
        ptx::tma_load(smem_.a(at_.stage), &p_.a, loaded, k, row_, p_.a_policy);
        ++at_;
        ++block_;
        if (--left_ > 0) return;
        items_.next();
        if (items_.any()) enter();
    }

    const PrenormParams& p_;
    const PrenormShared<C>& smem_;
    PrenormItems items_;
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::producer();
    uint32_t row_ = 0, block_ = 0, left_ = 0;
};

/// The rows that become zero, four at a time for each of a grid's splitting warps: eight lanes have a row.
template <PrenormConfig C>
class PrenormZeros {
public:
    __device__ PrenormZeros(const PrenormParams& p, uint32_t warp)
        : p_(p), slice_(p.real_slices), row_((blockIdx.x * C.splitters() + warp) * 4 + lane() / 8) {
        find();
    }

    __device__ void step() {
        if (slice_ >= p_.slices) return;
        float* const d = p_.d + slice_ * p_.d_slice_stride + row_ * p_.d_row_stride;
        const uint32_t col = lane() % 8 * 4;
        if (col < p_.cols) store_four(p_, d + col, {});
        if (lane() % 8 == 0) ptx::store_global(p_.squares + slice_ * p_.squares_stride + row_, 0.0f);
        row_ += uint64_t{gridDim.x} * (C.splitters() * 4);
        find();
    }
    __device__ void finish() {
        while (slice_ < p_.slices) step();
    }

private:
    __device__ static uint32_t lane() { return threadIdx.x % kWarpSize; }
    __device__ void find() {
        for (; slice_ < p_.slices && row_ >= p_.rows; ++slice_) row_ -= p_.rows;
    }

    const PrenormParams& p_;
    uint32_t slice_;
    uint64_t row_;
};

/// Four elements of B as bf16: the first half of each pair, then the second.
struct PrenormFour {
    uint32_t first[2], second[2];

    __device__ static PrenormFour of(const ptx::Words4& f32) {
        Tf32Pair pair[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) pair[i] = tf32_pair(float_of_bits(f32.w[i]));
        PrenormFour four;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            four.first[i] = pair[2 * i].first >> 16 | pair[2 * i + 1].first;
            four.second[i] = pair[2 * i].second >> 16 | pair[2 * i + 1].second;
        }
        return four;
    }
};

/// Splits four rows of 64 f32 into as many bf16 twice, in the same place; by a warp, which reads all before it writes.
template <PrenormConfig C>
__device__ void split_b(SmemAddr b, const PrenormPiece& at) {
    const PrenormFour low = PrenormFour::of(ptx::load_shared_words_x4(b + prenorm_b_f32(C.cols, at, 0)));
    const PrenormFour high = PrenormFour::of(ptx::load_shared_words_x4(b + prenorm_b_f32(C.cols, at, 1)));
    __syncwarp();
    ptx::store_shared_words_x4(b + prenorm_b_bf16(C.cols, at, 0),
                               {{low.first[0], low.first[1], high.first[0], high.first[1]}});
    ptx::store_shared_words_x4(b + prenorm_b_bf16(C.cols, at, 1),
                               {{low.second[0], low.second[1], high.second[0], high.second[1]}});
}

/// One of the splitting warps; it stores slices that are zero meanwhile.
template <PrenormConfig C>
__device__ void split_blocks(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank, uint32_t warp) {
    RingCursor<C.stages()> at = RingCursor<C.stages()>::consumer();
    const PrenormPiece piece = prenorm_piece(warp, threadIdx.x % kWarpSize);
    PrenormZeros<C> zeros(p, warp);
    for (PrenormItems items(p, rank); items.any(); items.next()) {
        const uint32_t blocks = items.blocks();
        for (uint32_t i = 0; i < blocks; ++i, ++at) {
            wait(smem.loaded(at.stage), at.parity);
            split_b<C>(smem.b(at.stage), piece);
            ptx::fence_proxy_async_shared();  // tensor cores read what was stored
            arrive_of_warp(smem.split(at.stage));
            zeros.step();
            zeros.step();
        }
    }
    zeros.finish();
}

}  // namespace finegemm::device
