// finegemm.mqa_logits and its neighbours. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

// Each returns what it writes to: the tensor that was given, or a new one.
Object mqa_logits_into(const Imports& imports, Context& context, Arguments& given);
Object paged_mqa_logits_into(const Imports& imports, Context& context, Arguments& given);
Object paged_mqa_schedule_into(const Imports& imports, Context& context, Arguments& given);

/// JSON text. `keywords`: all arguments of `explain_mqa` in Python.
Object explain_mqa_text(const Imports&, PyObject* keywords);

}  // namespace finegemm::python
