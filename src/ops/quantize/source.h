// The sources of the quantisation kernels. Layer jit.
#pragma once

#include <span>

#include <finegemm/quantize/quantize.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// All there are.
std::span<const QuantizeConfig> quantize_configs();

KernelSource source_of(const QuantizeConfig& config);

}  // namespace finegemm::jit
