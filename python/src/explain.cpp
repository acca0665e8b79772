// Which kernel a product takes, for Python: its arguments as the shape that C++ explains. Layer: front end.
#include "explain.h"

#include <string>

#include <finegemm/gemm.h>

#include "arguments.h"
#include "plan/fields.h"

namespace finegemm::python {

Object explain_text(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    GemmShape shape;
    std::string device, plan_table;
    given.take("m", shape.m);
    given.take("n", shape.n);
    given.take("k", shape.k);
    given.take("device", device);
    given.take("plan_table", plan_table);
    plan::fields([&](const plan::Field& field, auto& member) { given.take(field.name, member); }, shape);
    given.check_all_taken();
    const std::string plan = explain(shape, device, plan_table);
    return Object(PyUnicode_FromStringAndSize(plan.data(), static_cast<Py_ssize_t>(plan.size())));
}

}  // namespace finegemm::python
