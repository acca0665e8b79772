// Calls from programs that XLA has compiled. Layer: front end.
#pragma once

#include "tensors.h"

namespace finegemm::python {

/// {"cpu": handler, "CUDA": handler} as jax.ffi.register_ffi_target takes them. A handler calls
/// run(buffers, options, stream): capsules of operands and then results, which are good for that call alone, a dict of
/// attributes, and the stream as a number, None on the CPU. What it returns is None or the text of an error.
Object ffi_handlers(const Imports& imports, PyObject* run);

}  // namespace finegemm::python
