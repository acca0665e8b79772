// finegemm.swiglu_quantize. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// Returns q and scales, each the tensor that was given, or a new one.
Object swiglu_quantize_into(const Imports& imports, Context& context, Arguments& given);

}  // namespace finegemm::python
