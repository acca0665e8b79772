// The grouped GEMM on the CPU. Layer backend.
#pragma once

#include <finegemm/grouped.h>

#include "backend/groups.h"
#include "backend/thread_pool.h"

namespace finegemm {

void cpu_grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options, ThreadPool& pool);

/// The GEMM of one group's rows; for rows of no group only its D is set.
GemmArgs gemm_of(const GroupedGemmArgs& args, const GroupRows& of, bool stacked);

}  // namespace finegemm
