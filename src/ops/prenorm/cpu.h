// The product before a norm on the CPU. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/prenorm/call.h"

namespace finegemm {

/// All of the result is in the first slice.
void run_on_cpu(const PrenormCall& call, ThreadPool& pool);

/// How far the sum of all slices may be from the exact result on any device; docs/prenorm.md derives it. `absolute`:
/// the sum of magnitudes of products.
double prenorm_bound(double absolute, int64_t k);

}  // namespace finegemm
