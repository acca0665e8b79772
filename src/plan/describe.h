// A kernel's plan in words, for `explain` and tests. Layer plan.
#pragma once

#include <finegemm/gemm/kernel_plan.h>
#include <nlohmann/json.hpp>

namespace finegemm::plan {

/// Enumerators by their names; sizes in bytes; what the kernel does not have is left out.
nlohmann::ordered_json describe(const KernelPlan& plan);

}  // namespace finegemm::plan
