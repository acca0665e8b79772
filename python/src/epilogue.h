// What is added to a product, as Python's keywords say it. Layer: front end.
#pragma once

#include <finegemm/gemm.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// The arguments that plan/fields.h lists. `stacked`: C is a stack of matrices, as D is.
Epilogue epilogue_of(Arguments& given, Tensors& tensors, bool stacked);

}  // namespace finegemm::python
