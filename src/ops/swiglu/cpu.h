// SwiGLU with quantisation on the CPU. Layer cpu.
// Compiled by Highway for several instruction sets, chosen when the program runs.
#pragma once

#include "engine/thread_pool.h"
#include "ops/swiglu/call.h"

namespace finegemm {

void run_on_cpu(const SwigluCall& call, ThreadPool& pool);

}  // namespace finegemm
