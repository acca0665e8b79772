// What the last bits of D depend on in a kernel. Layer gemm. docs/numerics.md says what follows from it.
#pragma once

#include <finegemm/gemm/kernel_plan.h>

namespace finegemm {

struct Arithmetic {
    uint32_t splits = 1;              // ranges of K (k_range), whose sums are added one after the other
    uint32_t k_slices = 1;            // of a range: slice i sums blocks i, i + k_slices, ...; then the slices are added
    bool tensor_core_scales = false;  // scales are multiplied by the tensor cores (gemm/split_scale.h), not in FP32
    constexpr bool operator==(const Arithmetic&) const = default;
};
FG_HD constexpr Arithmetic arithmetic_of(const GemmConfig& c) {
    return {
        .splits = c.k_splits(), .k_slices = c.k_slices(), .tensor_core_scales = kernel_plan(c).tensor_core_scales()};
}

}  // namespace finegemm
