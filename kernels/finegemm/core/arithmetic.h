// All of a kernel that the last bits of D depend on. Layer core. docs/numerics.md says what follows from it.
#pragma once

#include <finegemm/core/registers.h>

namespace finegemm {

struct Arithmetic {
    uint32_t splits = 1;  // ranges of K (k_range), whose sums are added one after the other
    uint32_t teams = 1;   // of a range: every teams-th block from the first is summed, from the second ...; these then
    bool wgmma_factors = false;  // scales are multiplied by the tensor cores (core/scale_parts.h), not in FP32
    constexpr bool operator==(const Arithmetic&) const = default;
};
FG_HD constexpr Arithmetic arithmetic_of(const GemmConfig& c) {
    return {.splits = c.k_splits(), .teams = c.teams(), .wgmma_factors = factors_by_wgmma(c)};
}

}  // namespace finegemm
