// The sources of the kernels that are a whole layer of experts. Layer jit.
#pragma once

#include <vector>

#include <finegemm/layer/layer.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

KernelSource source_of(const LayerConfig& config);

/// All there are.
std::vector<KernelSource> layer_sources();

}  // namespace finegemm::jit
