// Adds the sums of two k-slices to those of the tile. Layer device.
#pragma once

#include <finegemm/gemm/k_slices.h>
#include <finegemm/device/mma/mainloop.cuh>

namespace finegemm::device {

/// True in the later k-slice, which then has the sums of the tile. The earlier one leaves its own in shared memory and
/// is done, while the last k-block is still multiplied.
template <GemmConfig C>
__device__ bool add_k_slices(Accumulator<C>& acc, const Shared<C>& smem, uint32_t k_blocks) {
    static_assert(C.k_slices() == 2 && C.row_warpgroups() == 1 && C.stages % 2 == 0 && !kPlan<C>.persistent);
    const uint32_t k_slice = ptx::broadcast(threadIdx.x / 128), earlier = earlier_slice(k_blocks);
    constexpr uint32_t kSums = Accumulator<C>::kRegisters;
    float (&sum)[kSums] = acc.sum[0];
    const auto room = [&](uint32_t r) {
        return smem.b(earlier + slice_sums_stage(C, r)) + slice_sums_offset(C, threadIdx.x % 128, r);
    };
    if (k_slice == earlier) {
        warpgroup_barrier(k_slice);  // all of its warps have read B
#pragma unroll
        for (uint32_t r = 0; r < kSums; r += 4)
            ptx::store_shared_x4(room(r), {sum[r], sum[r + 1], sum[r + 2], sum[r + 3]});
        __syncwarp();
        if (threadIdx.x % kWarpSize < kLanesArrive) ptx::mbarrier_arrive(smem.slice_sums_full());
        return false;
    }
    wait(smem.slice_sums_full(), 0);
#pragma unroll
    for (uint32_t r = 0; r < kSums; r += 4) {
        const ptx::Float4 of_earlier = ptx::load_shared_x4(room(r));
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) sum[r + i] += of_earlier.part[i];
    }
    return true;
}

/// True in the warpgroups that then have the sums of the tile: all, where there are no k-slices.
template <GemmConfig C>
__device__ bool has_tile_sums(Accumulator<C>& acc, const Shared<C>& smem, uint32_t k_blocks) {
    if constexpr (C.k_slices() > 1) return add_k_slices<C>(acc, smem, k_blocks);
    return true;
}

}  // namespace finegemm::device
