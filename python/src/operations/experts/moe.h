// finegemm.moe, explain_moe and moe_workspace_bytes. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>
#include <finegemm/moe.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// What a layer is called with, but for the first expert's id. Returns `out`, the tensor that was given, or a new one.
Object take_layer(Tensors& tensors, Arguments& given, MoeArgs& args, MoeOptions& options);

/// Returns `out`.
Object moe_into(const Imports& imports, Context& context, Arguments& given);

// The keywords are the fields of a shape; explain_moe also takes the device.
Object explain_moe_text(const Imports&, PyObject* keywords);
Object moe_workspace_bytes_of(const Imports&, PyObject* keywords);

}  // namespace finegemm::python
