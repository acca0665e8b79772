// The grouped GEMM on the CPU. Layer backend.
#pragma once

#include <finegemm/grouped.h>

#include "backend/groups.h"
#include "backend/thread_pool.h"

namespace finegemm {

void cpu_grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options, ThreadPool& pool);

/// The GEMM of a run; without a group, its D alone.
GemmArgs gemm_of(const GroupedGemmArgs& args, const GroupRun& run, bool stacked);

}  // namespace finegemm
