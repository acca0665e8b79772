// Which kernel a product takes, for Python. Layer: front end.
#pragma once

#include "object.h"
#include "tensors.h"

namespace finegemm::python {

/// JSON text. `keywords`: all arguments of `explain` in Python.
Object explain_text(const Imports&, PyObject* keywords);

}  // namespace finegemm::python
