// A layer of experts of few tokens as one launch. Layer engine.
#pragma once

#include <finegemm/layer/layer.h>

#include "cuda/driver.h"
#include "ops/moe/call.h"

namespace finegemm {

/// Where in the workspace is what: bytes from its first line.
struct LayerMemory {
    int64_t rows = 0, row_scales = 0;    // of tokens
    int64_t between = 0;                 // the activation in bf16
    int64_t codes = 0, code_scales = 0;  // of it
    int64_t y = 0;
    int64_t bytes = 0;  // wherever the memory begins
};
LayerMemory layer_memory_of(const MoeShape& shape);

/// Whether there is such a kernel for layers of this shape.
bool can_be_one_launch(const MoeShape& shape);
/// And for this call, whose operands lie as the kernel wants them.
bool can_be_one_launch(const MoeCall& call);

struct LayerLaunch {
    LayerConfig config;
    LayerParams params;
    uint32_t grid;
};
/// `slot`: of the counters, which no other launch uses at the same time.
LayerLaunch one_launch_of(const MoeCall& call, void* memory, uint32_t slot, const cuda::Driver& driver, uint32_t sms);

}  // namespace finegemm
