// The command line tool, for Python. Layer: front end.
#pragma once

#include "object.h"
#include "tensors.h"

namespace finegemm {
class Context;
}

namespace finegemm::python {

/// Runs the tool as a process does it; returns its exit code. `arguments`: a list of str, without the tool's name.
Object run_tool(const Imports&, PyObject* arguments);

/// Sentences about variables of this process.
Object misspelt(const Imports&);

/// Lines of the problems that a context has met.
Object problems(const Context& context);

/// What a command writes to standard output, and its exit code, with the options of a context.
Object report(const Context& context, PyObject* arguments);

}  // namespace finegemm::python
