// The sources of the kernels that select. Layer jit.
#pragma once

#include <vector>

#include <finegemm/topk/topk.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

KernelSource source_of(const TopkConfig& config);

/// All there are.
std::vector<KernelSource> topk_sources();

}  // namespace finegemm::jit
