// The kernel that writes the schedule of paged logits. Layer device.
#pragma once

#include <finegemm/mqa/schedule.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/warp.cuh>

namespace finegemm::device {

/// One CTA: each thread adds up neighbouring requests, and then writes the rows of the slots that begin in them.
__device__ inline void mqa_schedule(const MqaScheduleParams& p) {
    constexpr uint32_t kThreads = MqaScheduleConfig::threads();
    __shared__ uint32_t sums[kThreads / kWarpSize];
    ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
    const uint32_t each = ceil_div(p.requests, kThreads);
    const uint32_t first = min(threadIdx.x * each, p.requests), last = min(first + each, p.requests);
    uint32_t units = 0;
    for (uint32_t request = first; request < last; ++request) units += mqa_splits(p, request) * p.atoms;
    const uint32_t up_to = sum_up_to(units), warp = threadIdx.x / kWarpSize;
    if (threadIdx.x % kWarpSize == kWarpSize - 1) sums[warp] = up_to;
    __syncthreads();
    uint32_t total = 0, begin = up_to - units;
    for (uint32_t w = 0; w < kThreads / kWarpSize; ++w) {
        if (w < warp) begin += sums[w];
        total += sums[w];
    }
    const MqaSlots slots = MqaSlots::of(total, p.slots);
    const auto write = [&](uint32_t slot, uint32_t atom, uint32_t split) {
        int32_t* const row = p.schedule + slot * p.schedule_stride;
        ptx::store_global(row, atom);
        ptx::store_global(row + 1, split);
    };
    for (uint32_t request = first; request < last; ++request) {
        const uint32_t splits = mqa_splits(p, request), end = begin + splits * p.atoms;
        if (splits == 0) continue;
        for (uint32_t slot = slots.slot_from(begin); slot < p.slots && slots.begin(slot) < end; ++slot) {
            const uint32_t inside = slots.begin(slot) - begin;
            write(slot, request * p.atoms + inside / splits, inside % splits);
        }
        begin = end;
    }
    // Behind all requests: the end of the last slot, and slots that have nothing because nothing is to be done.
    for (uint32_t slot = (total == 0 ? 0 : p.slots) + threadIdx.x; slot <= p.slots; slot += kThreads)
        write(slot, p.requests * p.atoms, 0);
}

}  // namespace finegemm::device
