// Argument checks of an indexer's scores: every reject names the argument, what came, the rule and the way out.
// Layer api.
#pragma once

#include "ops/mqa/call.h"

namespace finegemm {

// Each throws Error(InvalidArgument).
void check_mqa(const MqaCall& call);
void check_mqa(const PagedMqaCall& call);
void check_mqa(const PagedMqaScheduleCall& call);
void check_mqa(const MqaShape& shape);

}  // namespace finegemm
