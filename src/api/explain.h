// A grouped product as the planner knows it. Layer api.
#pragma once

#include <finegemm/grouped.h>

#include "plan/plan.h"

namespace finegemm {

/// Throws Error(InvalidArgument) for a shape that grouped_gemm does not take or needs no kernel for.
plan::Problem problem_of(const GroupedShape& shape);

}  // namespace finegemm
