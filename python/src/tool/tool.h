// What the command line tool has, for Python: commands, logs of calls, weights of checkpoints. Layer: front end.
#pragma once

#include <finegemm/context.h>

#include "object.h"
#include "tensors.h"

namespace finegemm::python {

/// Runs the tool as a process does it; returns its exit code. `arguments`: a list of str, without the tool's name.
Object run_tool(const Imports&, PyObject* arguments);

/// Sentences about variables of this process.
Object misspelt(const Imports&);

/// Lines of the problems that a context has met.
Object problems(const Context& context);

/// What a command writes to standard output, and its exit code, with the options of a context.
Object report(const Context& context, PyObject* arguments);

/// The tool's log of calls as a capsule, for contexts and finish_log. `wish`: as FINEGEMM_LOG says it.
Object open_log(const Imports&, PyObject* wish);
/// Has it write its summary.
Object finish_log(const Imports&, PyObject* log);

/// A context's log: a capsule of open_log, or a callable, which gets line, kernel, origin, device and host_us.
Log log_of(PyObject* x);

/// What cli/files/checkpoint.h finds by a name: dtype, rows, columns and bytes of the values and, unless they are None,
/// of the scales; then the words.
Object weights(const Imports&, PyObject* name);

}  // namespace finegemm::python
