// Logs of calls, for Python. Layer: front end.
#pragma once

#include <finegemm/context.h>

#include "object.h"
#include "tensors.h"

namespace finegemm::python {

/// The tool's log of calls as a capsule, for contexts and finish_log. `wish`: as FINEGEMM_LOG says it.
Object open_log(const Imports&, PyObject* wish);
/// Has it write its summary.
Object finish_log(const Imports&, PyObject* log);

/// A context's log: a capsule of open_log, or a callable, which gets line, kernel, origin, device and host_us.
Log log_of(PyObject* x);

}  // namespace finegemm::python
