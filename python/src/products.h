// finegemm.gemm, grouped_gemm, k_grouped_gemm and einsum: what they are given, and what they return. Layer: front end.
#pragma once

#include "arguments.h"
#include "tensors.h"

namespace finegemm::python {

Object gemm_into(const Imports& imports, Context& context, Arguments& given);
Object grouped_gemm_into(const Imports& imports, Context& context, Arguments& given);
Object k_grouped_gemm_into(const Imports& imports, Context& context, Arguments& given);
Object einsum_into(const Imports& imports, Context& context, Arguments& given);

}  // namespace finegemm::python
