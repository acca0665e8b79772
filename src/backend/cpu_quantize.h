// Quantisation on the CPU. Layer backend.
#pragma once

#include "backend/backend.h"
#include "backend/thread_pool.h"

namespace finegemm {

void cpu_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales, const QuantizeOptions& options,
                  ThreadPool& pool);

}  // namespace finegemm
