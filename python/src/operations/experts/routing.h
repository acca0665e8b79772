// finegemm.route, permute_quantize and combine. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

// Each returns what is written: tensors that were given, or new ones.

Object route_into(const Imports& imports, Context& context, Arguments& given);
Object permute_quantize_into(const Imports& imports, Context& context, Arguments& given);
Object combine_into(const Imports& imports, Context& context, Arguments& given);

}  // namespace finegemm::python
