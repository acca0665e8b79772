// A math warpgroup: products and squares of its 64 rows of each tile, and the sum of a cluster's parts. Layer device.
#pragma once

#include <finegemm/core/fragment.h>
#include <finegemm/core/ring.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/device/prenorm/shared.cuh>
#include <finegemm/device/prenorm/store.cuh>
#include <finegemm/device/ptx/fragment.cuh>
#include <finegemm/device/ptx/wgmma.cuh>

namespace finegemm::device {

/// What a thread has of a part: registers of the accumulators of 64 rows, and half the partial sums of squares of one.
template <PrenormConfig C>
struct PrenormSums {
    float product[C.cols / 2] = {};
    float squares[2] = {};
};

template <PrenormConfig C>
class PrenormMath {
public:
    __device__ PrenormMath(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank, uint32_t warpgroup)
        : p_(p), smem_(smem), rank_(rank), warpgroup_(warpgroup) {
        // Two threads have a row: one its first 32 columns, one the others.
        const uint32_t row = thread() / 2, half = thread() % 2;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            chunk_[i] = swizzled(row * 128 + (half * 4 + i) * 16, Swizzle::B128) + warpgroup * kRowsBytes;
    }

    __device__ void run() {
        uint32_t parity = 0;
        if (!is_alone()) ptx::cluster_wait();  // for the barriers of the others; of one CTA all threads would have to
        for (PrenormItems items(p_, rank_); items.any(); items.next(), parity ^= 1) {
            const PrenormSums<C> sums = sum_part(items.count());
            begin_parts(parity);
            if (is_alone()) send<true>(sums);
            else send<false>(sums);
            if (is_alone()) sync();
            else wait_of_cluster(smem_.parts_full(warpgroup_), parity);
            store_share(items.tile() * C.rows + warpgroup_ * 64 + rank_ * p_.share(), items.slice());
            if (!is_alone() && !items.is_last()) free_parts();
        }
    }

private:
    static constexpr uint32_t kRowsBytes = 64 * kPrenormBlock * 2, kBlockBytes = C.rows * kPrenormBlock * 2,
                              kPitch = prenorm_pitch(C);

    __device__ static uint32_t thread() { return threadIdx.x % 128; }
    __device__ static void wait_of_cluster(SmemAddr barrier, uint32_t parity) {
        while (!ptx::mbarrier_try_wait_cluster(barrier, parity)) {}
    }

    /// While tensor cores multiply a stage, the squares of the next one are added.
    __device__ PrenormSums<C> sum_part(uint32_t stages) {
        constexpr uint32_t kChunk = kPrenormChunk / C.blocks();
        PrenormSums<C> sums;
        float product[C.cols] = {};
        add_next_squares(sums);
#pragma unroll 1
        for (uint32_t i = 0; i < stages; ++i) {
            const uint32_t stage = at_.stage;
            wait(smem_.split(stage), at_.parity);
            ptx::wgmma_fence();
#pragma unroll
            for (uint32_t j = 0; j < C.blocks(); ++j)
                ptx::wgmma_k64(product,
                               wgmma_descriptor(smem_.a(stage).bits + j * kBlockBytes + warpgroup_ * kRowsBytes),
                               wgmma_descriptor(smem_.b(stage).bits + j * (C.cols * 256)), i % kChunk + j);
            ptx::wgmma_commit_group();
            ++at_;
            if (i + 1 < stages) add_next_squares(sums);
            ptx::wgmma_wait_group<0>();
#pragma unroll
            for (float& x : product) ptx::pin(x);
            arrive_of_warp(smem_.empty(stage));
            if (i % kChunk + 1 == kChunk || i + 1 == stages) add_chunk(sums, product);
        }
        return sums;
    }
    __device__ static void add_chunk(PrenormSums<C>& sums, const float (&product)[C.cols]) {
#pragma unroll
        for (uint32_t r = 0; r < C.cols / 2; ++r)  // the second halves of pairs are `cols` columns on
            sums.product[r] = ptx::add(sums.product[r], ptx::add(product[r], product[r + C.cols / 2]));
    }
    __device__ void add_next_squares(PrenormSums<C>& sums) const {
        wait(smem_.loaded(at_.stage), at_.parity);
#pragma unroll
        for (uint32_t i = 0; i < C.blocks() * 4; ++i) {
            const ptx::Words4 eight =
                ptx::load_shared_words_x4(smem_.a(at_.stage) + (i / 4 * kBlockBytes + chunk_[i % 4]));
#pragma unroll
            for (const uint32_t two : eight.w) {
                const float even = float_of_bits(two << 16), odd = float_of_bits(two & 0xffff0000u);
                sums.squares[0] = ptx::fma(even, even, sums.squares[0]);
                sums.squares[1] = ptx::fma(odd, odd, sums.squares[1]);
            }
        }
    }

    /// st.async is illegal in a CTA that has a cluster for itself: its warpgroups store and meet instead.
    __device__ bool is_alone() const { return p_.cluster_log2 == 0; }
    __device__ void sync() const { ptx::named_barrier_sync(1 + warpgroup_, 128); }

    /// Waits until the parts of the item before have been read everywhere.
    __device__ void begin_parts(uint32_t parity) const {
        if (is_alone()) return sync();
        wait_of_cluster(smem_.parts_free(warpgroup_), parity ^ 1);
        if (thread() == 0)
            ptx::mbarrier_arrive_expect_tx(smem_.parts_full(warpgroup_), PrenormShared<C>::kAt.parts_bytes);
    }

    /// To the CTA that adds up a row: of each 64 rank r has the r-th share.
    template <bool Alone>
    __device__ void send(const PrenormSums<C>& sums) const {
#pragma unroll
        for (uint32_t r = 0; r < C.cols / 2; r += 2) {
            const RowCol at = wgmma_accumulator(thread(), r);
            send_two<Alone>(at.row, at.col, sums.product[r], sums.product[r + 1]);
        }
        send_two<Alone>(thread() / 2, C.cols + thread() % 2 * 2, sums.squares[0], sums.squares[1]);
    }
    template <bool Alone>
    __device__ void send_two(uint32_t row, uint32_t col, float x, float y) const {
        const uint32_t owner = p_.owner(row);
        const SmemAddr to = smem_.parts(warpgroup_) + place(rank_, row - owner * p_.share(), col);
        if (Alone) ptx::store_shared_x2(to, x, y);
        else ptx::st_async_x2(ptx::map_to_rank(to, owner), x, y, ptx::map_to_rank(smem_.parts_full(warpgroup_), owner));
    }
    /// Where, among the parts, an element lies of a row of this CTA's share.
    __device__ uint32_t place(uint32_t sender, uint32_t row, uint32_t col) const {
        return ((sender * p_.share() + row) * kPitch + col) * 4;
    }

    /// Adds up the parts of this CTA's share, four columns in a thread, and stores them. `first`: row of A and D.
    __device__ void store_share(uint32_t first, uint32_t slice) const {
        constexpr uint32_t kFours = kPitch / 4;
        for (uint32_t i = thread(); i < p_.share() * kFours; i += 128) {
            const uint32_t row = i / kFours, col = i % kFours * 4;
            const bool is_squares = col == C.cols;
            ptx::Float4 sum{};
            for (uint32_t sender = 0; sender < p_.cluster(); ++sender) {
                ptx::Float4 part = ptx::load_shared_x4(smem_.parts(warpgroup_) + place(sender, row, col));
                if (is_squares)
                    part.part[0] = ptx::add(ptx::add(part.part[0], part.part[1]), ptx::add(part.part[2], part.part[3]));
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j)
                    sum.part[j] = sender == 0 ? part.part[j] : ptx::add(sum.part[j], part.part[j]);
            }
            const int64_t m = int64_t{first} + row;
            if (m >= p_.rows) continue;
            if (is_squares) ptx::store_global(p_.squares + slice * p_.squares_stride + m, sum.part[0]);
            else if (col < p_.cols) store_four(p_, p_.d + slice * p_.d_slice_stride + m * p_.d_row_stride + col, sum);
        }
    }
    /// Tells the cluster that this CTA's parts of the item have been read.
    __device__ void free_parts() const {
        __syncwarp();
        sync();
        if (thread() < p_.cluster())
            ptx::mbarrier_arrive_release_cluster(ptx::map_to_rank(smem_.parts_free(warpgroup_), thread()));
    }

    const PrenormParams& p_;
    const PrenormShared<C>& smem_;
    uint32_t rank_, warpgroup_, chunk_[4];
    RingCursor<C.stages()> at_ = RingCursor<C.stages()>::consumer();
};

}  // namespace finegemm::device
