// The validation mode's look at groups and scales. Layer engine.
#pragma once

#include "ops/gemm/call.h"

namespace finegemm {

// Checks of values in the host's memory, which throw Error(InvalidArgument) that names the first value that breaks the
// rules, where it is, and the rule. Arguments have been checked.

/// Of the numbers that say which rows or which k a group has; without an allocation where all is well.
void check_group_numbers(const Call& call);

/// Of all scales that a group has: what the others hold is nobody's business. The numbers have been checked.
void check_scale_values(const Call& call);

}  // namespace finegemm
