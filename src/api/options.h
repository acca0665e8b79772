// Reading and checking options. Layer api.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <finegemm/context.h>

namespace finegemm {

/// Where variables come from: the value, or null when there is none.
using Variables = std::function<const char*(const char* name)>;

Options options_from(const Variables& variables);

/// A sentence for each of these variables, "NAME=VALUE", whose name is nearly one that options_from asks for.
std::vector<std::string> misspelt_variables(std::span<const char* const> variables);
/// Sentences for the variables of this process.
std::vector<std::string> misspelt_variables();

/// Sets NCCL_NVLS_ENABLE to 0 for the process, before NCCL reads it. Throws Error(InvalidArgument) where it says
/// something else.
void forbid_multicast();

/// FINEGEMM_LOG, which front ends follow (cli/log.h): the library itself writes nothing. Empty where it is not set.
std::string log_variable();

/// Options may also be set by hand. Throws Error(InvalidArgument) for a value out of range.
void check_options(const Options& options);

}  // namespace finegemm
