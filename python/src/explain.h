// Which kernel a product takes, for Python. Layer: front end.
#pragma once

#include "object.h"
#include "tensors.h"

namespace finegemm::python {

/// JSON text. `groups`, `k_groups`: of a grouped or K-grouped product, or None.
Object explain_text(const Imports&, PyObject* m, PyObject* n, PyObject* k, PyObject* groups, PyObject* expected_m,
                    PyObject* alignment, PyObject* k_groups, PyObject* row_b_scales, PyObject* out_dtype,
                    PyObject* device, PyObject* batch_invariant, PyObject* num_sms, PyObject* accumulate,
                    PyObject* plan_table);

}  // namespace finegemm::python
