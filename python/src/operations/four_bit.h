// finegemm.four_bit_gemm, and packing. Layer: front end.
#pragma once

#include "object.h"

#include <string_view>

#include <finegemm/context.h>
#include <finegemm/four_bit.h>

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

/// A FourBitWeights of Python, whose tensors are borrowed; those of FP8 where it has them.
struct GivenWeights {
    FourBitWeights packed{};
    ConstStack fp8{}, fp8_scales{};
    Object data{};

    /// `name`: of its bytes in messages.
    GivenWeights(Tensors& tensors, PyObject* x, const char* name = "packed");
};
bool are_four_bit(PyObject* x);
/// Throws Error(InvalidArgument) for another name.
FourBitFormat format_named(std::string_view name);

/// Returns d, the tensor that was given, or a new one.
Object four_bit_gemm_into(const Imports& imports, Context& context, Arguments& given);

/// A new tensor of bytes, [G, bytes of a matrix]. `keywords`: codes, scales or exponents, format and conventions.
Object packed_four_bit(const Imports& imports, PyObject* keywords);

/// Codes in e4m3 and scales of one matrix of weights, or of all, new ones. `keywords`: weights and group, or None.
Object unpacked_four_bit(const Imports& imports, PyObject* keywords);

Object explain_four_bit_text(const Imports&, PyObject* keywords);

}  // namespace finegemm::python
