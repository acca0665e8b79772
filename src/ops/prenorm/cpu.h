// The product before a norm on the CPU. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/prenorm/call.h"

namespace finegemm {

/// K is one part, in the first slice.
void run_on_cpu(const PrenormCall& call, ThreadPool& pool);

// How far the sum of all slices may be from the exact result on any device; docs/prenorm.md derives both.

/// `absolute`: the sum of magnitudes of products.
double prenorm_bound(double absolute, int64_t k);
double prenorm_squares_bound(double sum, int64_t k);

}  // namespace finegemm
