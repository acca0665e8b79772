// Argument checks: every reject names the argument, what came, the rule and the way out. Layer api.
#pragma once

#include <finegemm/quantize.h>

#include "backend/backend.h"

namespace finegemm {

// Checks of arguments, which throw Error(InvalidArgument). They read no memory but the arguments' own and offsets on
// the host, and allocate only to reject.
void check_gemm(const Call& call);
void check_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales);

}  // namespace finegemm
