// Producers of tiles of A and B for sums over stacks. Layer device.
#pragma once

#include <finegemm/device/load/operands.cuh>

namespace finegemm::device {

/// The first loads of a CTA, by one thread, as those of a dense product: there is always a first tile. It is published
/// before its first block is expected, which lets nobody read it sooner.
template <GemmConfig C>
__device__ void load_first_round(const SummedParams& p, const Shared<C>& smem, PieceScheduler scheduler) {
    Tile tile;
    scheduler.take<C>(tile);
    const BlockLoads<C> loads(p, smem, tile, scheduler.rank, 0);
    publish(smem, 0, packed(tile, scheduler.k.size()));
    const uint32_t blocks = first_round(scheduler.k, C.stages).size();
    ptx::grid_dependency_wait();
#pragma unroll 1
    for (uint32_t stage = 0; stage < blocks; ++stage) loads.load(stage, scheduler.k.begin + stage);
}

/// Loads all tiles, by one lane of a warp, after load_first_round. A tile is published with its first block.
template <GemmConfig C>
__device__ void load_tiles(const SummedParams& p, const Shared<C>& smem, PieceScheduler scheduler) {
    if (!ptx::elect_one()) return;
    auto at = RingCursor<C.stages>::producer();
    bool begun = true;
    for (Tile tile; scheduler.take<C>(tile); begun = false) {
        const BlockLoads<C> loads(p, smem, tile, scheduler.rank, 0);
        const uint32_t first = scheduler.k.begin + (begun ? first_round(scheduler.k, C.stages).size() : 0);
        at += first - scheduler.k.begin;
#pragma unroll 1
        for (uint32_t kb = first; kb < scheduler.k.end; ++kb, ++at) {
            wait(smem.empty(at.stage), at.parity);
            if (kb == scheduler.k.begin) publish(smem, at.stage, packed(tile, scheduler.k.size()));
            loads.load(at.stage, kb);
        }
    }
    wait(smem.empty(at.stage), at.parity);
    publish(smem, at.stage, {});
    ptx::mbarrier_arrive(smem.full(at.stage));
}

}  // namespace finegemm::device
