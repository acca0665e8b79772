// The sources of the quantisation kernels. Layer jit.
#pragma once

#include <span>

#include <finegemm/quantize/columns.h>
#include <finegemm/quantize/reencode.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// All there are, and those of columns.
std::span<const QuantizeConfig> quantize_configs();

std::span<const QuantizeColumnsConfig> quantize_columns_configs();

std::span<const ReencodeConfig> reencode_configs();

KernelSource source_of(const QuantizeConfig& config);
KernelSource source_of(const QuantizeColumnsConfig& config);
KernelSource source_of(const ReencodeConfig& config);

}  // namespace finegemm::jit
