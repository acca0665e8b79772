// finegemm.prenorm_gemm. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// Returns d and sqrsum, each the tensor that was given, or a new one.
Object prenorm_gemm_into(const Imports& imports, Context& context, Arguments& given);

/// JSON text. `keywords`: all arguments of `explain_prenorm` in Python.
Object explain_prenorm_text(const Imports&, PyObject* keywords);

}  // namespace finegemm::python
