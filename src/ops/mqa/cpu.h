// An indexer's scores on the CPU. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/mqa/call.h"

namespace finegemm {

void run_on_cpu(const MqaCall& call, ThreadPool& pool);
void run_on_cpu(const PagedMqaCall& call, ThreadPool& pool);
void run_on_cpu(const PagedMqaScheduleCall& call, ThreadPool& pool);

}  // namespace finegemm
