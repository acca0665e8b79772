// Argument checks: every reject names the argument, what came, the rule and the way out. Layer api.
#pragma once

#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>
#include <finegemm/quantize.h>

#include "backend/backend.h"

namespace finegemm {

// They throw Error(InvalidArgument). They read no memory but the arguments' own, and allocate only to reject.
void check_gemm(const GemmArgs& args, const GemmOptions& options);
void check_grouped(const GroupedGemmArgs& args, const GemmOptions& options);
void check_k_grouped(const KGroupedGemmArgs& args, const GemmOptions& options);
/// Of the type of D alone, not of the extents.
void check_gemm_shape(const GemmShape& shape);
/// Of the groups alone, not of the extents.
void check_grouped_shape(const GroupedShape& shape);
/// Of the groups and what they ask of K.
void check_k_grouped_shape(const KGroupedShape& shape);
void check_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales);

}  // namespace finegemm
