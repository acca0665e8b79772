// The sources of the kernels for the product before a norm. Layer jit.
#pragma once

#include <span>

#include <finegemm/prenorm/prenorm.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// All there are.
std::span<const PrenormConfig> prenorm_configs();

/// "FineGEMM_prenorm_64x24_tf32_hc_prenorm_gemm": rows of a tile, columns, and what profiles are searched for. The
/// cluster is its launch's.
KernelSource source_of(const PrenormConfig& config);
inline KernelSource source_of(const PrenormKernel& kernel) { return source_of(kernel.config); }

}  // namespace finegemm::jit
