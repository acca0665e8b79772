// The kernel that gives choices their places in messages to ranks, and marks places that have no row. Layer device.
#pragma once

#include <finegemm/routing/slots.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::device {

__device__ inline void store_tail(const SlotsParams& p, bool wanted, uint32_t slot, uint32_t id) {
    uint8_t* const tail = p.tails + slot * p.row_bytes;
    ptx::store_global_if(wanted, tail, id);
    ptx::store_global_if(wanted, tail + 4, kThere);
}

__device__ inline void place_choice(const SlotsParams& p, uint32_t number) {
    const uint32_t token = p.by_k.quotient(number), choice = number - token * p.by_k.divisor;
    const uint32_t row = ptx::load_global_if(true, p.inverse + number);
    const bool chosen = static_cast<int32_t>(row) >= 0;  // else the id may be anything
    const uint8_t* const from = p.ids + (token * p.ids_row_stride + choice) * (p.wide ? 8 : 4);
    const uint32_t id = ptx::load_global_if(chosen, from);
    const uint32_t rank = p.rank_slots.by_experts.quotient(id);
    const uint32_t first = ptx::load_global_if(chosen, p.offsets + rank * p.rank_slots.by_experts.divisor);
    const uint32_t slot = p.rank_slots.of(rank, row, first);
    ptx::store_global_if(true, p.slots + number, chosen ? slot : static_cast<uint32_t>(kNoRow));
    store_tail(p, chosen && (p.rank_slots.capacity == 0 || slot < p.rank_slots.all()), slot, id);
}

__device__ inline uint32_t choices_of_rank(const SlotsParams& p, uint32_t rank) {
    const int32_t* const first = p.offsets + rank * p.rank_slots.by_experts.divisor;
    return ptx::load_global_if(true, first + p.rank_slots.by_experts.divisor) - ptx::load_global_if(true, first);
}

/// A place of a message that no choice has.
__device__ inline void mark_unused(const SlotsParams& p, uint32_t slot) {
    const uint32_t rank = p.rank_slots.by_capacity.quotient(slot);
    const bool unused = slot - rank * p.rank_slots.capacity >= choices_of_rank(p, rank);
    store_tail(p, unused, slot, static_cast<uint32_t>(kNoRow));
}

/// What shows whether the messages of a rank have come.
__device__ inline void mark_missing(const SlotsParams& p, uint32_t rank) {
    ptx::store_global_if(true, p.counts + rank, choices_of_rank(p, rank));
    const int64_t slot = rank * p.rank_slots.capacity;
    ptx::store_global_if(p.coming != nullptr, p.coming + slot * p.row_bytes + 4, kMissing);
    ptx::store_global_if(p.returned != nullptr, p.returned + slot * p.returned_row_bytes, kMissing);
}

__device__ inline void assign_slots(const SlotsParams& p) {
    ptx::grid_launch_dependents();
    ptx::grid_dependency_wait();
    for (uint32_t task = blockIdx.x * SlotsConfig::threads() + threadIdx.x; task < p.tasks();
         task += gridDim.x * SlotsConfig::threads()) {
        if (task < p.choices) place_choice(p, task);
        if (task < p.rank_slots.all()) mark_unused(p, task);
        if (task < p.rank_slots.ranks) mark_missing(p, task);
        // A choice whose message is full has the row behind the last one, which is NaN.
        const bool word = p.returned && task < p.returned_row_bytes / 4;
        ptx::store_global_if(word, p.returned + p.rank_slots.all() * int64_t{p.returned_row_bytes} + task * 4,
                             kMissing);
    }
}

}  // namespace finegemm::device
