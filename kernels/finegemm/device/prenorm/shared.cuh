// Addresses of everything in the shared memory of the kernel before a norm, and what a CTA has to do. Layer device.
#pragma once

#include <finegemm/gemm/roles.h>
#include <finegemm/prenorm/prenorm.h>
#include <finegemm/device/pipeline/wait.cuh>
#include <finegemm/device/ptx/control.cuh>

namespace finegemm::device {

using ptx::SmemAddr;

template <PrenormConfig C>
struct PrenormShared {
    static constexpr PrenormSmemPlan kAt = prenorm_smem(C);
    SmemAddr base;

    __device__ SmemAddr a(uint32_t stage) const { return base + (stage * kAt.stage_bytes + kAt.a); }
    __device__ SmemAddr b(uint32_t stage) const { return base + (stage * kAt.stage_bytes + kAt.b); }
    __device__ SmemAddr loaded(uint32_t stage) const { return base + (kAt.loaded + stage * 8); }
    __device__ SmemAddr split(uint32_t stage) const { return base + (kAt.split + stage * 8); }
    __device__ SmemAddr empty(uint32_t stage) const { return base + (kAt.empty + stage * 8); }
    __device__ SmemAddr parts(uint32_t warpgroup) const { return base + (kAt.parts + warpgroup * kAt.parts_bytes); }
    __device__ SmemAddr parts_full(uint32_t warpgroup) const { return base + (kAt.parts_full + warpgroup * 8); }
    __device__ SmemAddr parts_free(uint32_t warpgroup) const { return base + (kAt.parts_free + warpgroup * 8); }
};

/// One arrival of a warp that has done with a stage.
__device__ inline void arrive_of_warp(SmemAddr barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpSize < kLanesArrive) ptx::mbarrier_arrive(barrier);
}

/// The items of a CTA: those of its cluster, and its part of K in each.
class PrenormItems {
public:
    __device__ PrenormItems(const PrenormParams& p, uint32_t rank)
        : p_(p), rank_(rank), item_(blockIdx.x >> p.cluster_log2), clusters_(gridDim.x >> p.cluster_log2) {}

    __device__ bool any() const { return item_ < p_.items; }
    __device__ bool is_last() const { return p_.items - item_ <= clusters_; }
    __device__ void next() { item_ += clusters_; }

    __device__ uint32_t tile() const { return p_.tile(item_); }
    __device__ uint32_t slice() const { return p_.slice(item_); }
    /// Stages of K: the first one, and how many.
    __device__ uint32_t first() const { return p_.parts.first(part()); }
    __device__ uint32_t count() const { return p_.parts.count(part()); }

private:
    __device__ uint32_t part() const { return (slice() << p_.cluster_log2) + rank_; }

    const PrenormParams& p_;
    uint32_t rank_, item_, clusters_;
};

}  // namespace finegemm::device
