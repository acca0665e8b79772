// Groups of rows that may be left out. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/gemm.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// The argument that says which rows belong to a group, if one does.
const char* take_groups(Tensors& tensors, Arguments& given, Groups& groups);

}  // namespace finegemm::python
