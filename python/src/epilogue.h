// What is added to a product, as Python's keywords say it. Layer: front end.
#pragma once

#include <optional>

#include <finegemm/gemm.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// The arguments that plan/fields.h lists. `counted`: the dimension of C that counts matrices, as of D, if there are
/// several.
Epilogue epilogue_of(Arguments& given, Tensors& tensors, std::optional<int> counted = {});

}  // namespace finegemm::python
