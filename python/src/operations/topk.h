// finegemm.topk and its neighbours. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

// Each returns the indices, given or new, or where none are asked for the histogram.
Object topk_into(const Imports& imports, Context& context, Arguments& given);
Object mqa_topk_into(const Imports& imports, Context& context, Arguments& given);
Object paged_mqa_topk_into(const Imports& imports, Context& context, Arguments& given);

/// JSON text. `keywords`: all arguments of `explain_topk` in Python.
Object explain_topk_text(const Imports&, PyObject* keywords);

}  // namespace finegemm::python
