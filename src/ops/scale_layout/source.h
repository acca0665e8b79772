// The sources of the kernels for layouts of scales. Layer jit.
#pragma once

#include <span>

#include <finegemm/scale_layout/scale_layout.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// All there are.
std::span<const ScaleLayoutConfig> scale_layout_configs();

KernelSource source_of(const ScaleLayoutConfig& config);

}  // namespace finegemm::jit
