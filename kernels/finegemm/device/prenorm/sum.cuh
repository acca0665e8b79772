// A math warpgroup: products of its 64 rows of each tile. Layer device.
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/prenorm/parts.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

/// Registers of the accumulators of 64 rows.
template <PrenormConfig C>
struct PrenormSums {
    float product[C.cols / 2] = {};
};

template <PrenormConfig C>
class PrenormMath {
public:
    __device__ PrenormMath(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank, uint32_t warpgroup)
        : p_(p), smem_(smem), parts_(p, smem, rank, warpgroup), rank_(rank), warpgroup_(warpgroup) {}

    __device__ void run() {
        uint32_t parity = 0;
        PrenormParts64<C>::wait_for_cluster(p_);
        for (PrenormItems items(p_, rank_); items.any(); items.next(), parity ^= 1) {
            const PrenormSums<C> sums = sum_part(items.count());
            parts_.begin(parity);
            parts_.expect();
            send(sums);
            parts_.sent();
            parts_.add_up(parity, items.tile() * C.rows + warpgroup_ * 64, items.slice());
            parts_.free(items.is_last());
        }
    }

private:
    __device__ PrenormSums<C> sum_part(uint32_t stages) {
        constexpr uint32_t kChunk = kPrenormChunk / C.blocks();
        PrenormSums<C> sums;
        float product[C.cols] = {};
#pragma unroll 1
        for (uint32_t i = 0; i < stages; ++i, ++at_) {
            wait(smem_.split(at_.stage), at_.parity);
            ptx::wgmma_fence();
#pragma unroll
            for (uint32_t j = 0; j < C.blocks(); ++j)
                ptx::wgmma_k64(
                    product,
                    wgmma_descriptor(smem_.a(at_.stage).bits + (j * C.warpgroups() + warpgroup_) * kPrenormRowsBytes),
                    wgmma_descriptor(smem_.b(at_.stage).bits + j * prenorm_b_bytes(C)), i % kChunk + j);
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
#pragma unroll
            for (float& x : product) ptx::pin(x);
            arrive_of_warp(smem_.empty(at_.stage));
            if (i % kChunk + 1 == kChunk || i + 1 == stages) add_chunk(sums, product);
        }
        return sums;
    }
    __device__ static void add_chunk(PrenormSums<C>& sums, const float (&product)[C.cols]) {
#pragma unroll
        for (uint32_t r = 0; r < C.cols / 2; ++r)  // the second halves of pairs are `cols` columns on
            sums.product[r] = ptx::add(sums.product[r], ptx::add(product[r], product[r + C.cols / 2]));
    }
    __device__ void send(const PrenormSums<C>& sums) const {
#pragma unroll
        for (uint32_t r = 0; r < C.cols / 2; r += 2) {
            const RowCol at = wgmma_accumulator(threadIdx.x % 128, r);
            parts_.send(at.row, at.col, sums.product[r], sums.product[r + 1]);
        }
    }

    const PrenormParams& p_;
    const PrenormShared<C>& smem_;
    PrenormParts64<C> parts_;
    uint32_t rank_, warpgroup_;
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::consumer();
};

}  // namespace finegemm::device
