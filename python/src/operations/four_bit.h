// finegemm.four_bit_gemm, and packing. Layer: front end.
#pragma once

#include "object.h"

#include <finegemm/context.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// Returns d, the tensor that was given, or a new one.
Object four_bit_gemm_into(const Imports& imports, Context& context, Arguments& given);

/// A new tensor of bytes, [G, bytes of a matrix]. `keywords`: codes, scales or exponents, format and conventions.
Object packed_four_bit(const Imports& imports, PyObject* keywords);

/// Codes in e4m3 and scales of one matrix of weights, new ones. `keywords`: weights and group.
Object unpacked_four_bit(const Imports& imports, PyObject* keywords);

}  // namespace finegemm::python
