// Tensors of DLPack producers as the library's matrices. Layer: front end.
#pragma once

#include <string_view>

#include <finegemm/tensor.h>
#include <tvm/ffi/container/tensor.h>

namespace finegemm::python {

/// What an unsigned integer stands for: formats that a producer cannot name travel as their bits.
enum class Bits { None, E4M3, BF16 };

/// A view of `tensor`, which has two dimensions. Throws Error(InvalidArgument) that calls the tensor `name`.
Matrix matrix(std::string_view name, const tvm::ffi::TensorView& tensor, Bits bits = Bits::None);

}  // namespace finegemm::python
