// Division by a number that the host knows: a multiplication and a shift, where the hardware has no division.
// Layer core. Granlund and Montgomery, "Division by invariant integers using multiplication", 1994, theorem 4.2.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// Divides numbers below 2^31 by `divisor`, which is at least 1 and at most 2^31.
struct Divider {
    uint32_t divisor = 1, multiplier = 1u << 31, shift = 0;

    FG_HD static constexpr Divider by(uint32_t divisor) {
        uint32_t bits = 0;  // the least with 2^bits >= divisor
        while ((1ull << bits) < divisor) ++bits;
        return {divisor, static_cast<uint32_t>(((1ull << (31 + bits)) + divisor - 1) / divisor), bits};
    }
    FG_HD constexpr uint32_t quotient(uint32_t x) const {
        return static_cast<uint32_t>(static_cast<uint64_t>(x << 1) * multiplier >> 32) >> shift;
    }
    FG_HD constexpr uint32_t ceil_quotient(uint32_t x) const { return x == 0 ? 0 : quotient(x - 1) + 1; }
    constexpr bool operator==(const Divider&) const = default;
};

}  // namespace finegemm
