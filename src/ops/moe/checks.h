// Argument checks of a layer of experts: every reject names the argument, what came, the rule and the way out.
// Layer api.
#pragma once

#include "ops/moe/call.h"

namespace finegemm {

/// Throws Error(InvalidArgument).
void check_moe(const MoeShape& shape);
void check_moe(const MoeCall& call);

}  // namespace finegemm
