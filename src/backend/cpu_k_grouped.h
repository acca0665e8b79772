// The K-grouped GEMM on the CPU. Layer backend.
#pragma once

#include <finegemm/k_grouped.h>

#include "backend/groups.h"
#include "backend/thread_pool.h"
#include "plan/plan.h"

namespace finegemm {

plan::Problem problem_of(const KGroupedGemmArgs& args, bool batch_invariant, const GemmOptions& options);

void cpu_k_grouped_gemm(const KGroupedGemmArgs& args, const GemmOptions& options, ThreadPool& pool);

/// The GEMM of group `g`, which has these k-blocks.
GemmArgs gemm_of(const KGroupedGemmArgs& args, uint32_t g, KRange blocks);

}  // namespace finegemm
