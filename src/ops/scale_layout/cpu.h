// Changes of scales' layout on the CPU. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/scale_layout/call.h"

namespace finegemm {

void run_on_cpu(const ScaleLayoutCall& call, ThreadPool& pool);

}  // namespace finegemm
