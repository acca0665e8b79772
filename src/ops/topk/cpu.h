// Selection on the CPU. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/topk/call.h"

namespace finegemm {

void run_on_cpu(const TopkCall& call, ThreadPool& pool);

}  // namespace finegemm
