// Argument checks of quantisation: every reject names the argument, what came, the rule and the way out. Layer api.
#pragma once

#include "ops/quantize/call.h"

namespace finegemm {

// All throw Error(InvalidArgument).
void check_quantize(const QuantizeCall& call);
void check_quantize(const QuantizeColumnsCall& call);
void check_reencode(const ReencodeCall& call);

}  // namespace finegemm
