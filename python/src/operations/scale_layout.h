// finegemm.scale_layout. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// Returns `out`, or a new tensor if it is not given.
Object scale_layout_into(const Imports& imports, Context& context, Arguments& given);

}  // namespace finegemm::python
