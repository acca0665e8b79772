// Argument checks: every reject names the argument, what came, the rule and the way out. Layer api.
#pragma once

#include "ops/gemm/call.h"

namespace finegemm {

// Checks of arguments, which throw Error(InvalidArgument). They read no memory but the arguments' own and offsets on
// the host, and allocate only to reject.
void check_gemm(const Call& call);

}  // namespace finegemm
