// The validation mode's look at groups and their scales. Layer backend.
#pragma once

#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>

namespace finegemm {

// Checks of values, which throw Error(InvalidArgument) that names the first value that breaks the rules, its index and
// the rule. They look at the host's memory; arguments have been checked.

/// At args.groups.data.
void check_group_numbers(const GroupedGemmArgs& args);

/// At args.sfb, and at the rows of args.sfa that have a group: what the others hold is nobody's business. The numbers
/// have been checked.
void check_group_scales(const GroupedGemmArgs& args);

/// At args.offsets, without an allocation where all is well.
void check_k_offsets(const KGroupedGemmArgs& args);

/// At args.sfa and args.sfb, of the k-blocks that have a group. The offsets have been checked.
void check_k_group_scales(const KGroupedGemmArgs& args);

}  // namespace finegemm
