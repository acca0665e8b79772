// The GEMM on the CPU, and what tests need beside it. Layer backend.
#pragma once

#include "backend/backend.h"
#include "backend/thread_pool.h"

namespace finegemm {

void cpu_gemm(const GemmArgs& args, const GemmOptions& options, ThreadPool& pool);

/// Parts into which the kernel that `options.config` names divides K; without a name, the kernel that the planner takes on an
/// H200. The order of the sums, and with it the last bits, depends on it.
uint32_t k_splits_of(const GemmArgs& args, const GemmOptions& options);

/// The result in double, before it is rounded: rows x cols, row-major. args.d gives the extents only.
void cpu_gemm_exact(const GemmArgs& args, ThreadPool& pool, double* d);

/// How far an element of D may be from the exact sum: `absolute` is the sum of the magnitudes of its terms
/// |A * sfa * B * sfb|, `exact` the sum itself. Holds for Numerics::Hopper and for the GPU; docs/numerics.md derives it.
double error_bound(double absolute, double exact, int64_t k_blocks);

}  // namespace finegemm
