// Products with weights of 4 bits on the CPU: those of the FP8 that the weights are. Layer engine.
#pragma once

#include "engine/thread_pool.h"
#include "ops/four_bit/call.h"

namespace finegemm {

void run_on_cpu(const FourBitCall& call, ThreadPool& pool);

}  // namespace finegemm
