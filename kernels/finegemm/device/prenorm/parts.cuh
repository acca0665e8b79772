// The sum of a cluster's parts: what warps send, where it lies, who adds it up and stores it. Layer device.
#pragma once

#include <finegemm/device/prenorm/shared.cuh>
#include <finegemm/device/prenorm/store.cuh>
#include <finegemm/device/ptx/fragment.cuh>

namespace finegemm::device {

/// The sums of 64 rows. A math warpgroup, which adds up its CTA's share of them, and the squaring warps send them to
/// their owners. st.async is illegal in a CTA that has a cluster for itself: there they store, and their warps arrive.
template <PrenormConfig C>
class PrenormParts64 {
public:
    __device__ PrenormParts64(const PrenormParams& p, const PrenormShared<C>& smem, uint32_t rank, uint32_t warpgroup)
        : p_(p), smem_(smem), rank_(rank), warpgroup_(warpgroup) {}

    /// For the barriers of the others; of a cluster of one all threads would have to wait.
    __device__ static void wait_for_cluster(const PrenormParams& p) {
        if (p.cluster_log2 > 0) ptx::cluster_wait();
    }
    /// Waits until the parts of the item before have been read everywhere. By both.
    __device__ void begin(uint32_t parity) const { wait_for(smem_.parts_free(warpgroup_), parity ^ 1); }
    /// Two neighbouring columns of a row, to the CTA that adds it up: of each 64 rows rank r has the r-th share.
    __device__ void send(uint32_t row, uint32_t col, float x, float y) const {
        const uint32_t owner = p_.owner(row);
        const SmemAddr to = smem_.parts(warpgroup_) + place(rank_, row - owner * p_.share(), col);
        if (is_alone()) ptx::store_shared_x2(to, x, y);
        else ptx::st_async_x2(ptx::map_to_rank(to, owner), x, y, ptx::map_to_rank(smem_.parts_full(warpgroup_), owner));
    }
    /// This warp has sent all.
    __device__ void sent() const {
        if (is_alone()) arrive_of_warp(smem_.parts_full(warpgroup_));
    }

    /// Called by math warpgroups alone, after `begin`.
    __device__ void expect() const {
        if (!is_alone() && thread() == 0)
            ptx::mbarrier_arrive_expect_tx(smem_.parts_full(warpgroup_), PrenormShared<C>::kAt.parts_bytes);
    }
    /// Adds up the parts of this CTA's share, when all have come, four columns in a thread, and stores them. `first`:
    /// row of A and D.
    __device__ void add_up(uint32_t parity, uint32_t first, uint32_t slice) const {
        wait_for(smem_.parts_full(warpgroup_), parity);
        for (uint32_t i = thread(); i < p_.share() * kFours; i += 128) {
            const uint32_t row = i / kFours, col = i % kFours * 4;
            const ptx::Float4 sum = sum_of(row, col);
            const int64_t m = int64_t{first} + rank_ * p_.share() + row;
            if (m >= p_.rows) continue;
            if (col == C.cols) ptx::store_global(p_.squares + slice * p_.squares_stride + m, sum.part[0]);
            else if (col < p_.cols) store_four(p_, p_.d + slice * p_.d_slice_stride + m * p_.d_row_stride + col, sum);
        }
    }
    /// Tells the cluster that this CTA's parts of the item have been read; nobody needs to know of the last item's.
    __device__ void free(bool is_last) const {
        if (is_last) return;
        if (is_alone()) return arrive_of_warp(smem_.parts_free(warpgroup_));
        __syncwarp();
        ptx::named_barrier_sync(kRead + warpgroup_, 128);
        if (thread() < p_.cluster())
            ptx::mbarrier_arrive_release_cluster(ptx::map_to_rank(smem_.parts_free(warpgroup_), thread()));
    }

private:
    static constexpr uint32_t kPitch = prenorm_pitch(C), kFours = kPitch / 4;
    static constexpr uint32_t kRead = 1;  // the first of a named barrier for each warpgroup

    __device__ static uint32_t thread() { return threadIdx.x % 128; }
    __device__ bool is_alone() const { return p_.cluster_log2 == 0; }
    __device__ static void wait_for(SmemAddr barrier, uint32_t parity) {
        while (!ptx::mbarrier_try_wait_cluster(barrier, parity)) {}
    }
    /// Where, among the parts, an element lies of a row of this CTA's share.
    __device__ uint32_t place(uint32_t sender, uint32_t row, uint32_t col) const {
        return ((sender * p_.share() + row) * kPitch + col) * 4;
    }
    __device__ ptx::Float4 sum_of(uint32_t row, uint32_t col) const {
        ptx::Float4 sum{};
        for (uint32_t sender = 0; sender < p_.cluster(); ++sender) {
            ptx::Float4 part = ptx::load_shared_x4(smem_.parts(warpgroup_) + place(sender, row, col));
            if (col == C.cols)  // partial sums of squares
                part.part[0] = ptx::add(ptx::add(part.part[0], part.part[1]), ptx::add(part.part[2], part.part[3]));
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j)
                sum.part[j] = sender == 0 ? part.part[j] : ptx::add(sum.part[j], part.part[j]);
        }
        return sum;
    }

    const PrenormParams& p_;
    const PrenormShared<C>& smem_;
    uint32_t rank_, warpgroup_;
};

}  // namespace finegemm::device
