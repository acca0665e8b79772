// The product before a norm on the CPU. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/prenorm/call.h"

namespace finegemm {

/// K is one part, in the first slice.
void run_on_cpu(const PrenormCall& call, ThreadPool& pool);

}  // namespace finegemm
