// Rows of groups, counted in few choices of tokens by a warp. Layer device.
#pragma once

#include <finegemm/gemm/params.h>
#include <finegemm/device/ptx/control.cuh>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// The choices that a kernel with counts_choices counts.
__device__ inline const CountedChoices& choices_of(const GroupedParams& p) {
    return static_cast<const ChoiceParams&>(p).choices;
}

/// The group that a choice takes; `groups` where it takes none of these.
__device__ inline uint32_t group_of_choice(const CountedChoices& c, uint32_t groups, uint32_t number) {
    const bool exists = number < c.count;
    const uint32_t token = c.by_k.quotient(number), slot = number - token * c.by_k.divisor;
    const int64_t element = exists ? token * c.row_stride + slot : 0;
    const uint8_t* const from = c.ids + element * (c.wide ? 8 : 4);
    const uint32_t low = ptx::load_global_l2_if(exists, from);
    const uint32_t high =
        c.wide ? ptx::load_global_l2_if(exists, from + 4) : static_cast<uint32_t>(static_cast<int32_t>(low) >> 31);
    const uint64_t local = (static_cast<uint64_t>(high) << 32 | low) - static_cast<uint64_t>(c.first);
    return exists && local < groups ? static_cast<uint32_t>(local) : groups;
}

/// The rows of the group that the lane's choice takes, if it is the first choice of that group; else none.
__device__ inline GroupLayout::Ends ends_of_choice(const CountedChoices& c, uint32_t groups) {
    const uint32_t lane = threadIdx.x % kWarpSize, mine = group_of_choice(c, groups, lane);
    uint32_t before = 0, rows = 0, earlier = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < kCountedChoices; ++i) {
        const uint32_t other = ptx::value_of(mine, i);
        before += other < mine ? 1 : 0;
        rows += other == mine ? 1 : 0;
        earlier += other == mine && i < lane ? 1 : 0;
    }
    if (mine == groups || earlier > 0) return {};
    return {static_cast<int32_t>(before), static_cast<int32_t>(before + rows), mine};
}

}  // namespace finegemm::device
