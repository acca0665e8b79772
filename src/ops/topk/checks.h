// Argument checks of selections: every reject names the argument, what came, the rule and the way out. Layer api.
#pragma once

#include "ops/topk/call.h"

namespace finegemm {

// Each throws Error(InvalidArgument).
void check_topk(const TopkCall& call);
void check_topk(const MqaTopkCall& call);
void check_topk(const PagedMqaTopkCall& call);
void check_topk(const TopkShape& shape);

}  // namespace finegemm
