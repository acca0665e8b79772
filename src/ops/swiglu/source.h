// The sources of the kernels of SwiGLU with quantisation. Layer jit.
#pragma once

#include <span>

#include <finegemm/quantize/swiglu.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// All there are.
std::span<const SwigluConfig> swiglu_configs();

KernelSource source_of(const SwigluConfig& config);

}  // namespace finegemm::jit
