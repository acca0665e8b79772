// Routing on the CPU. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/routing/call.h"

namespace finegemm {

void run_on_cpu(const RouteCall& call, ThreadPool& pool);
void run_on_cpu(const PermuteCall& call, ThreadPool& pool);
void run_on_cpu(const CombineCall& call, ThreadPool& pool);

}  // namespace finegemm
