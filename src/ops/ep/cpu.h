// Where rows are in messages, on the CPU. Layer cpu.
#pragma once

#include "engine/thread_pool.h"
#include "ops/ep/call.h"

namespace finegemm {

void run_on_cpu(const SlotsCall& call, ThreadPool& pool);

void run_on_cpu(const PullCall& call, ThreadPool& pool);
void run_on_cpu(const PushCall& call, ThreadPool& pool);

}  // namespace finegemm
