// The sources of the kernels for routing. Layer jit.
#pragma once

#include <vector>

#include <finegemm/routing/routing.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

KernelSource source_of(const RouteConfig& config);
KernelSource source_of(const PermuteConfig& config);
KernelSource source_of(const CombineConfig& config);

/// All there are.
std::vector<KernelSource> routing_sources();

}  // namespace finegemm::jit
