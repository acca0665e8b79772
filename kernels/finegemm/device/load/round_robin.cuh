// Round-robin producers: each warp loads tiles and scales of its own k-blocks. Layer device.
#pragma once

#include <finegemm/device/load/operands.cuh>
#include <finegemm/device/load/scales_async.cuh>

namespace finegemm::device {

/// Round-robin producers: warp w loads tiles and scales of every kProducerWarps-th k-block, after load_first_round.
template <GemmConfig C>
__device__ void load_round_robin(const Params<C>& p, const Shared<C>& smem, DenseScheduler scheduler, uint32_t warp) {
    static_assert(kPlan<C>.producers == Producers::RoundRobin);
    ptx::grid_dependency_wait();
    // The TMA warp comes last: while it begins the first tiles the others copy their scales.
    uint32_t left_out = (warp + kProducerWarps - 1) % kProducerWarps;  // blocks before the next one of this warp
    uint32_t begun = blocks_of_first_round<C>(p, scheduler.k);
    auto at = RingCursor<C.stages>::producer();
    at += left_out;
    for (Tile tile; scheduler.template take<C>(tile); begun = 0) {
        const BlockLoads<C> loads(p, smem, tile, scheduler.rank, scheduler.k.begin);
        uint32_t kb = scheduler.k.begin + left_out;
        ScaleCopies<C> scales(p, tile, kb);
#pragma unroll 1
        for (; kb < scheduler.k.end; kb += kProducerWarps, at += kProducerWarps) {
            wait(smem.empty(at.stage), at.parity);
            if (kb >= scheduler.k.begin + begun && ptx::elect_one()) loads.load(at.stage, kb);
            __syncwarp();
            scales.fill(smem, at.stage);
            scales.advance(p, kProducerWarps);
        }
        left_out = kb - scheduler.k.end;
    }
}

}  // namespace finegemm::device
