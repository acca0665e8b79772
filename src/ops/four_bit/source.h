// The sources of the kernels for weights of 4 bits. Layer jit.
#pragma once

#include <span>

#include <finegemm/four_bit/four_bit.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// All there are.
std::span<const FourBitConfig> four_bit_configs();

/// "FineGEMM_four_bit_Mxfp4_many": the elements of the weights, and which rows it is for, unless these are few.
KernelSource source_of(const FourBitConfig& config);

}  // namespace finegemm::jit
