// The source of a GEMM kernel. Layer jit.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <finegemm/gemm/add_pieces.h>
#include <finegemm/gemm/config.h>
#include <finegemm/gemm/group_list.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// `name`: the plan's. Programs look for "gemm_" in what a profiler saw, and for "bf16_gemm"; kernels besides products
/// have neither.
std::string gemm_entry(const GemmConfig& config, std::string_view name);

/// A kernel's configuration is the only variable of its source.
KernelSource gemm_source(const GemmConfig& config, std::string_view name);

/// The expression that makes this value in C++.
std::string to_source(const GemmConfig& config);

/// The kernels that add up pieces: all there are.
std::span<const AddPiecesConfig> add_pieces_configs();
KernelSource source_of(const AddPiecesConfig& config);
/// The one that lists groups.
KernelSource source_of(const GroupListConfig& config);

}  // namespace finegemm::jit
