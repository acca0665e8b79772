// Weights of checkpoints, for Python. Layer: front end.
#pragma once

#include "object.h"
#include "tensors.h"

namespace finegemm::python {

/// What cli/files/checkpoint.h finds by a name: dtype, rows, columns and bytes of the values and, unless they are None,
/// of the scales; then the words.
Object weights(const Imports&, PyObject* name);

}  // namespace finegemm::python
