// Groups of K as Python gives them: offsets or sizes. Layer: front end.
#pragma once

#include <cstdint>
#include <vector>

#include "tensors.h"

namespace finegemm::python {

// Arrays of int32, or lists and tuples of ints, which are copied to `room`. Both throw Error(InvalidArgument).

/// Where each group begins, and where the last one ends.
Numbers k_offsets_of(Tensors& tensors, PyObject* offsets, std::vector<int32_t>& room);
/// Offsets in `room` of groups of these sizes.
Numbers k_offsets_of_sizes(Tensors& tensors, PyObject* sizes, std::vector<int32_t>& room);
void check_sum_of_sizes(int64_t sum, int64_t k);

}  // namespace finegemm::python
