// Argument checks of an indexer's scores: every reject names the argument, what came, the rule and the way out.
// Layer api.
#pragma once

#include "api/argument.h"
#include "ops/mqa/call.h"

namespace finegemm {

// Each throws Error(InvalidArgument).
void check_mqa(const MqaCall& call);
void check_mqa(const PagedMqaCall& call);
void check_mqa(const PagedMqaScheduleCall& call);
void check_mqa(const MqaShape& shape);

// What a call has besides its logits: types, shapes and options.
void check_mqa_operands(const MqaCall& call);
void check_mqa_operands(const PagedMqaCall& call);
/// `output` is on the device of what the call reads, and apart from that.
void check_mqa_places(const MqaCall& call, const Argument& output);
void check_mqa_places(const PagedMqaCall& call, const Argument& output);

}  // namespace finegemm
