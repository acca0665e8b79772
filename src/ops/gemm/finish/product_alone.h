// Finish::None: D is the product. Layer engine.
#pragma once

#include <cstdint>

#include "ops/gemm/call.h"

namespace finegemm {

/// What the host knows of a finish. Each type in finishes.h has these members.
struct ProductAlone {
    static constexpr Finish kFinish = Finish::None;

    /// Throws for arguments that no product takes. Before operands are checked, as it says which columns D has.
    static void check(const Call&) {}

    /// What a kernel takes of its own. fill_maps(maps, name, x) makes tensor maps of x, a stack like D.
    template <typename FillMaps>
    static DColumns params(const Call& call, const FillMaps&) {
        return plan::columns_of(call.epilogue());
    }

    // A value is that of one of a call's products, on the CPU. Its matrices like D are as large as the product's D.
    ProductAlone() = default;
    explicit ProductAlone(const Epilogue&) {}

    /// The element of D before it is rounded: of a float in the steps of the kernels, of a double in double.
    template <typename T>
    T of(T sum, int64_t, int64_t) const {
        return sum;
    }
    /// A bound for the error of that element, where `bound` is one for the error of the sum.
    double bound_of(double bound, double, int64_t, int64_t) const { return bound; }
};

}  // namespace finegemm
