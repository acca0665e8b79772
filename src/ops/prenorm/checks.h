// Argument checks of the product before a norm: every reject names the argument, what came, the rule and the way out.
// Layer api.
#pragma once

#include "ops/prenorm/call.h"

namespace finegemm {

// Each throws Error(InvalidArgument).
void check_prenorm(const PrenormCall& call);
void check_prenorm(const PrenormShape& shape);

}  // namespace finegemm
