// Argument checks of a layer over ranks: every reject names the argument, what came, the rule and the way out.
// Layer api.
#pragma once

#include "ops/ep/call.h"

namespace finegemm {

/// Throws Error(InvalidArgument).
void check_ep_moe(const EpMoeCall& call);
/// Likewise, of memory for calls of up to so many tokens.
void check_peer_memory(const MoeShape& most, int64_t ranks);

}  // namespace finegemm
