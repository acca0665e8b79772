// RingCursor: which stage of a ring a role is at, and the mbarrier phase parity to wait for there.
// Layer core. Stage and parity change together or not at all.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

template <uint32_t Stages>
struct RingCursor {
    uint32_t stage = 0, parity = 0;

    /// A fresh mbarrier is in phase 0, so waiting for parity 1 passes: the ring starts empty.
    FG_HD static constexpr RingCursor producer() { return {0, 1}; }
    FG_HD static constexpr RingCursor consumer() { return {0, 0}; }

    FG_HD constexpr RingCursor& operator++() { return *this += 1; }
    /// At most one round on.
    FG_HD constexpr RingCursor& operator+=(uint32_t steps) {
        stage += steps;
        if (stage >= Stages) {
            stage -= Stages;
            parity ^= 1;
        }
        return *this;
    }
};

}  // namespace finegemm
