// How paged logits are split over slots, as programs expect it that make or read such a schedule. Layer mqa.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

inline constexpr uint32_t kMqaSplitKeys = 256;  // of a unit of work

/// There is one kernel.
struct MqaScheduleConfig {
    static constexpr uint32_t kCount = 1;
    FG_HD static constexpr uint32_t index() { return 0; }
    FG_HD static constexpr uint32_t threads() { return 1024; }
};

struct MqaScheduleParams {
    const int32_t* lengths;   // of the last query of each request
    int64_t lengths_stride;   // elements, from one request to the next
    int32_t* schedule;        // [slots + 1, 2]
    int64_t schedule_stride;  // elements, from one row to the next
    uint32_t requests, slots;
    uint32_t atoms;  // of a request: pairs of queries
};

FG_HD constexpr uint32_t mqa_atoms(uint32_t queries) { return queries > 2 ? ceil_div(queries, 2) : 1; }

/// Units of work of each atom of a request.
FG_HD constexpr uint32_t mqa_splits(const MqaScheduleParams& p, uint32_t request) {
    const int32_t length = p.lengths[request * p.lengths_stride];
    return length > 0 ? ceil_div(static_cast<uint32_t>(length), kMqaSplitKeys) : 0;
}

/// Which units each slot has: the first slots have `units` / `slots`, the last ones one more.
struct MqaSlots {
    uint32_t each, slots, smaller;

    FG_HD static constexpr MqaSlots of(uint32_t units, uint32_t slots) {
        return {units / slots, slots, slots - units % slots};
    }
    /// The first unit of a slot.
    FG_HD constexpr uint32_t begin(uint32_t slot) const { return slot * each + (slot > smaller ? slot - smaller : 0); }
    /// The first slot that begins at this unit or behind it; `slots` if none does.
    FG_HD constexpr uint32_t slot_from(uint32_t unit) const {
        const uint32_t small = smaller * each;
        if (unit > small) return min(slots, smaller + ceil_div(unit - small, each + 1));
        return unit == 0 ? 0 : ceil_div(unit, each);
    }
};

/// A row of the schedule: the atom that a slot begins in, counted over all requests, and the unit of that atom.
struct MqaScheduleRow {
    int32_t atom, split;
    constexpr bool operator==(const MqaScheduleRow&) const = default;
};

}  // namespace finegemm
