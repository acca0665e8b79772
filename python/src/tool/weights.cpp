// Weights of checkpoints, for Python. Layer: front end.
#include "tool/weights.h"

#include <string>

#include "arguments.h"
#include "cli/files/checkpoint.h"
#include "plan/elements.h"

namespace finegemm::python {

namespace {

Object matrix_of(const cli::HostMatrix& m) {
    const Object bytes(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(m.bytes.data()),
                                                     static_cast<Py_ssize_t>(m.bytes.size())));
    return Object(Py_BuildValue("(sLLO)", name_of(m.dtype).c_str(), static_cast<long long>(m.rows),
                                static_cast<long long>(m.cols), bytes.get()));
}

}  // namespace

Object weights(const Imports&, PyObject* name) {
    const std::string wish(text("name", name));
    cli::Weights found;
    {
        const WithoutGil others_run;
        found = cli::read_weights(cli::name_of_weights(wish));
    }
    const Object values = matrix_of(found.values);
    const Object scales = found.scales ? matrix_of(*found.scales) : Object::shared(Py_None);
    return Object(Py_BuildValue("(OOs)", values.get(), scales.get(), found.found.c_str()));
}

}  // namespace finegemm::python
