// DLPack tensors as the library's matrices. Layer: front end.
#pragma once

#include <string_view>

#include <finegemm/tensor.h>

#include "dlpack.h"

namespace finegemm::python {

/// A view of `tensor`. Formats that a producer cannot name come as their bits: uint8 is e4m3, uint16 is bf16.
/// Throws Error that calls the tensor `name`.
Matrix matrix_of(std::string_view name, const DLTensor& tensor);

}  // namespace finegemm::python
