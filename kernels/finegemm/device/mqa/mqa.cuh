// The kernel of an indexer's logits as a table of contents: set up, split the tiles, choose a role. Layer device.
#pragma once

#include <finegemm/device/mqa/load.cuh>
#include <finegemm/device/mqa/logits.cuh>
#include <finegemm/device/ptx/dynamic_shared.cuh>

namespace finegemm::device {

/// A lane of each warp makes some: the lanes of one would make theirs one after the other. All threads meet before
/// anybody uses them.
template <MqaConfig C>
__device__ void make_barriers(const MqaParams& p, const MqaShared<C>& smem) {
    constexpr uint32_t kWarps = kMqaWarpgroups * 4;
    if (threadIdx.x % kWarpSize != 0) return;
    const uint32_t warp = threadIdx.x / kWarpSize;
    for (uint32_t stage = warp; stage < kMqaWarpgroups * C.stages(); stage += kWarps) {
        ptx::mbarrier_init(smem.full(stage), 1);
        ptx::mbarrier_init(smem.empty(stage), 128 << MqaRings<C>::sharers_log2_of(p));  // all threads of its warpgroups
    }
    if (warp < kMqaSlots) {
        ptx::mbarrier_init(smem.queries_full(warp), kQueryArrivals<C>);
        if (C.form == MqaForm::Abs) ptx::mbarrier_init(smem.queries_in(warp), kQueryCopies);
        ptx::mbarrier_init(smem.queries_empty(warp), kMqaWarpgroups * 128);
    }
    ptx::fence_mbarrier_init();
}

/// `Math`: the role of the warpgroups that take tiles.
template <MqaConfig C, template <MqaConfig> typename Math = MqaScores>
__device__ void mqa_logits(const MqaParams& p) {
    const MqaShared<C> smem{ptx::dynamic_shared()};
    if (threadIdx.x == 0) {
        ptx::prefetch_tensor_map(&p.q);
        if (C.keys == MqaKeys::Rows || p.page_count > 0) ptx::prefetch_tensor_map(&p.k);
        if (C.keys == MqaKeys::Rows) ptx::prefetch_tensor_map(&p.k_scales);
    }
    const uint32_t warpgroup = ptx::broadcast(threadIdx.x / 128);
    if (warpgroup < kMqaWarpgroups) {
        make_barriers(p, smem);
        if (p.fill) prepare_fill(p, smem);
    }
    // Nothing is written above, and nothing read before the kernels before this one have ended.
    ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
    if (C.keys == MqaKeys::Pages) prefetch_table<C>(p), prefetch_pages<C>(p);
    const MqaSplit split = split_tiles(p, smem, warpgroup);  // lengths come while others make barriers
    if (C.keys == MqaKeys::Pages && threadIdx.x == kMqaWarpgroups * 128)
        MqaRings<C>::tell(smem, split.cost >= kMqaManyTiles);
    __syncthreads();
    if (warpgroup == kMqaWarpgroups) {
        ptx::setmaxnreg_dec<MqaRegisters::kLoad>();
        MqaLoader<C>(p, smem, ptx::broadcast(threadIdx.x % 128 / kWarpSize))
            .run({ptx::broadcast(split.item), ptx::broadcast(split.before), ptx::broadcast(split.cost)});
    } else {
        ptx::setmaxnreg_inc<MqaRegisters::kMath>();
        Math<C>(p, smem, warpgroup).run();
    }
}

}  // namespace finegemm::device
