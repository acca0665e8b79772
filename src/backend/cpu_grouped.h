// The grouped GEMM on the CPU. Layer backend.
#pragma once

#include <finegemm/grouped.h>

#include "backend/thread_pool.h"

namespace finegemm {

void cpu_grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options, ThreadPool& pool);

}  // namespace finegemm
