// GEMMs of every grouping by one function, for front ends that do not tell them apart. Layer api.
#pragma once

#include <finegemm/context.h>

#include "ops/gemm/call.h"

namespace finegemm {

/// gemm, grouped_gemm or k_grouped_gemm, by the call's grouping.
void multiply(Context& context, const Call& call);

}  // namespace finegemm
