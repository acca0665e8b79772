// Argument checks of routing: every reject names the argument, what came, the rule and the way out. Layer api.
#pragma once

#include "ops/routing/call.h"

namespace finegemm {

// Each throws Error(InvalidArgument).
void check_routing(const RouteCall& call);
void check_routing(const PermuteCall& call);
void check_routing(const CombineCall& call);

}  // namespace finegemm
