// Finish::HeadGaps: D is the product in heads, with a gap in each that is not written. Layer engine.
#pragma once

#include "ops/gemm/finish/product_alone.h"

namespace finegemm {

/// Where its columns lie plan/fields.h says, for all finishes.
struct HeadGaps : ProductAlone {
    static constexpr Finish kFinish = Finish::HeadGaps;
    using ProductAlone::ProductAlone;
    static void check(const Call& call);
};

}  // namespace finegemm
