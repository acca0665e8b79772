// Checks of what is added to a product. Layer api.
#pragma once

#include "api/argument.h"
#include "ops/gemm/call.h"

namespace finegemm {

/// alpha, beta, C and the bias of a call whose operands have been checked.
void check_epilogue(const Call& call, const Argument& d);

}  // namespace finegemm
