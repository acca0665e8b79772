// Argument checks: every reject names the argument, what came, the rule and the way out. Layer api.
#pragma once

#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>
#include <finegemm/quantize.h>

#include "backend/backend.h"

namespace finegemm {

// Checks of arguments, which throw Error(InvalidArgument). They read no memory but the arguments' own, and allocate
// only to reject.
void check_gemm(const GemmArgs& args, const GemmOptions& options);
void check_grouped(const GroupedGemmArgs& args, const GemmOptions& options);
void check_k_grouped(const KGroupedGemmArgs& args, const GemmOptions& options);
/// Checks the type of D alone, not the extents.
void check_gemm_shape(const GemmShape& shape);
/// Checks the groups alone, not the extents.
void check_grouped_shape(const GroupedShape& shape);
/// Checks the groups and what they ask of K.
void check_k_grouped_shape(const KGroupedShape& shape);
void check_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales);

}  // namespace finegemm
