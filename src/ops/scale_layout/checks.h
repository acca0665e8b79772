// Argument checks of changes of scales' layout: every reject names the argument, what came, the rule and the way out.
// Layer api.
#pragma once

#include "ops/scale_layout/call.h"

namespace finegemm {

/// Throws Error(InvalidArgument).
void check_scale_layout(const ScaleLayoutCall& call);

}  // namespace finegemm
