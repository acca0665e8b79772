// Which kernel a product takes, for Python: its arguments as the shape that C++ explains. Layer: front end.
#include "explain.h"

#include <optional>
#include <string>

#include <finegemm/gemm.h>

#include "arguments.h"

namespace finegemm::python {

Object explain_text(const Imports&, PyObject* m, PyObject* n, PyObject* k, PyObject* groups, PyObject* expected_m,
                    PyObject* alignment, PyObject* k_groups, PyObject* row_b_scales, PyObject* out_dtype,
                    PyObject* device, PyObject* batch_invariant, PyObject* num_sms, PyObject* accumulate,
                    PyObject* plan_table) {
    const auto optional = [](const char* name, PyObject* x) {
        return x == Py_None ? std::nullopt : std::optional(integer(name, x));
    };
    const GemmShape shape{
        .m = integer("m", m),
        .n = integer("n", n),
        .k = integer("k", k),
        .row_b_scales = boolean("row_b_scales", row_b_scales),
        .out_dtype = out_dtype == Py_None ? std::nullopt : std::optional(output_named(text("out_dtype", out_dtype))),
        .groups = optional("groups", groups),
        .expected_m = integer("expected_m", expected_m),
        .alignment = integer("alignment", alignment),
        .k_groups = optional("k_groups", k_groups),
        .accumulate = boolean("accumulate", accumulate),
        .num_sms = integer32("num_sms", num_sms),
        .batch_invariant = boolean("batch_invariant", batch_invariant)};
    const std::string plan =
        explain(shape, std::string(text("device", device)), std::string(text("plan_table", plan_table)));
    return Object(PyUnicode_FromStringAndSize(plan.data(), static_cast<Py_ssize_t>(plan.size())));
}

}  // namespace finegemm::python
