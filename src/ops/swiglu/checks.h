// Argument checks of SwiGLU with quantisation: every reject names the argument, what came, the rule and the way out.
// Layer api.
#pragma once

#include "ops/swiglu/call.h"

namespace finegemm {

/// Throws Error(InvalidArgument).
void check_swiglu(const SwigluCall& call);
/// That of these numbers: what a SwiGLU is computed with.
void check_activation(float gate_limit, float gate_alpha, float up_offset);

}  // namespace finegemm
