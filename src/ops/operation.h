// The operations besides those of gemm and its kind. A call of each is one kernel, but for a layer of experts, here or
// over ranks, and the selection from logits, which are made of calls of others. Layer engine.
#pragma once

#include <variant>

#include "ops/ep/call.h"
#include "ops/four_bit/call.h"
#include "ops/moe/call.h"
#include "ops/mqa/call.h"
#include "ops/prenorm/call.h"
#include "ops/quantize/call.h"
#include "ops/routing/call.h"
#include "ops/scale_layout/call.h"
#include "ops/swiglu/call.h"
#include "ops/topk/call.h"

namespace finegemm {

/// A call of one of them. A backend finds what it needs by overloads: `launch_of` and `source_of` of the launch's
/// configuration on a GPU, `call_key` where keeping a launch pays, `run_on_cpu` on the CPU, `visit_numbers` and
/// `check_numbers` where a call has numbers to look at.
using Operation =
    std::variant<QuantizeCall, QuantizeColumnsCall, ReencodeCall, ScaleLayoutCall, MqaCall, PagedMqaCall,
                 PagedMqaScheduleCall, PrenormCall, SwigluCall, RouteCall, SlotsCall, PermuteCall, CombineCall, MoeCall,
                 EpMoeCall, PullCall, PushCall, TopkCall, MqaTopkCall, PagedMqaTopkCall, FourBitCall>;

}  // namespace finegemm
