// Products as the planner knows them. Layer api.
#pragma once

#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>

#include "plan/plan.h"

namespace finegemm {

// Problems of shapes. They throw Error(InvalidArgument) for a shape that the product does not take or needs no kernel
// for.
plan::Problem problem_of(const GemmShape& shape);
plan::Problem problem_of(const GroupedShape& shape);
plan::Problem problem_of(const KGroupedShape& shape);

}  // namespace finegemm
