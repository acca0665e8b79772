// Which kernel a product takes, for Python: its arguments as one of the shapes that C++ explains. Layer: front end.
#include "explain.h"

#include <string>

#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/k_grouped.h>

#include "arguments.h"

namespace finegemm::python {

Object explain_text(const Imports&, PyObject* m, PyObject* n, PyObject* k, PyObject* groups, PyObject* expected_m,
                    PyObject* alignment, PyObject* k_groups, PyObject* row_b_scales, PyObject* out_dtype,
                    PyObject* device, PyObject* batch_invariant, PyObject* num_sms, PyObject* accumulate,
                    PyObject* plan_table) {
    if (groups != Py_None && k_groups != Py_None)
        throw Error(Errc::InvalidArgument, "groups, k_groups: both are given, must be one at most; leave one out");
    const GemmShape shape{.m = integer("m", m),
                          .n = integer("n", n),
                          .k = integer("k", k),
                          .row_b_scales = boolean("row_b_scales", row_b_scales),
                          .out_dtype = output_named(text("out_dtype", out_dtype)),
                          .batch_invariant = boolean("batch_invariant", batch_invariant),
                          .num_sms = integer32("num_sms", num_sms),
                          .accumulate = boolean("accumulate", accumulate)};
    if (groups == Py_None && (integer("expected_m", expected_m) != 0 || integer("alignment", alignment) != 0))
        throw Error(Errc::InvalidArgument,
                    "expected_m, alignment: say what groups of rows are like, but groups is None; pass it, or leave "
                    "them out");
    const bool one_product = groups == Py_None && k_groups == Py_None;
    if (!one_product && (shape.row_b_scales || shape.out_dtype != DType::BF16))
        throw Error(Errc::InvalidArgument,
                    "row_b_scales, out_dtype: say what gemm takes, but groups or k_groups are "
                    "given, whose scales and d are of one kind; leave them out");
    if (groups != Py_None && shape.accumulate)
        throw Error(Errc::InvalidArgument, "accumulate: is set, but d of groups is overwritten; leave it out");
    const std::string gpu(text("device", device)), table(text("plan_table", plan_table));
    std::string plan;
    if (one_product) {
        plan = explain(shape, gpu, table);
    } else if (k_groups != Py_None) {
        const KGroupedShape of_k{.m = shape.m,
                                 .n = shape.n,
                                 .k = shape.k,
                                 .groups = integer("k_groups", k_groups),
                                 .batch_invariant = shape.batch_invariant,
                                 .num_sms = shape.num_sms,
                                 .accumulate = shape.accumulate};
        plan = with_names_of_python("k_groups", [&] { return explain(of_k, gpu, table); });
    } else {
        const GroupedShape of_rows{.m = shape.m,
                                   .n = shape.n,
                                   .k = shape.k,
                                   .groups = integer("groups", groups),
                                   .expected_m = integer("expected_m", expected_m),
                                   .alignment = integer("alignment", alignment),
                                   .num_sms = shape.num_sms};
        plan = with_names_of_python("groups", [&] { return explain(of_rows, gpu, table); });
    }
    return Object(PyUnicode_FromStringAndSize(plan.data(), static_cast<Py_ssize_t>(plan.size())));
}

}  // namespace finegemm::python
