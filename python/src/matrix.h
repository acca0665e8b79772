// DLPack tensors as the library's matrices. Layer: front end.
#pragma once

#include <cstdint>
#include <string_view>

#include <finegemm/gemm.h>

#include "dlpack.h"

namespace finegemm::python {

// All throw Error that calls the tensor `name`.

/// Checks that there is an address unless the tensor is empty.
void check_memory(std::string_view name, const DLTensor& tensor);

/// A view of `tensor`. Formats that a producer cannot name come as their bits: uint8 is e4m3, uint16 is bf16.
Matrix matrix_of(std::string_view name, const DLTensor& tensor);

/// A matrix whose rows are the columns of `m`, in the same memory.
Matrix transposed(const Matrix& m);

/// A view of a tensor of three dimensions, of which `counted`, 0 or 1, counts matrices.
Stack stack_of(std::string_view name, const DLTensor& tensor, int counted = 0);

/// A view of a tensor of one dimension: matrices of `rows` rows, one behind the other, that have `cols` columns
/// together.
Matrix blocks_of(std::string_view name, const DLTensor& tensor, int64_t rows, int64_t cols);

/// A view of a tensor of one dimension as a matrix of one row.
Matrix row_of(std::string_view name, const DLTensor& tensor);

/// Queries as a stack of [heads, D]: a tensor of three dimensions, or of four, of which the first two count queries.
Stack heads_of(std::string_view name, const DLTensor& tensor, int dimensions);

/// A matrix, or a vector as a matrix of one column.
Matrix lengths_of(std::string_view name, const DLTensor& tensor);

/// Pages of keys, [pages, P, 1, dim + 4], [pages, P, dim + 4] or [pages, bytes], as a matrix of bytes.
Matrix pages_of(std::string_view name, const DLTensor& tensor, int64_t dim);

/// A vector of int32.
struct Numbers {
    const int32_t* data;
    int64_t size;
    Device device;
};
Numbers numbers_of(std::string_view name, const DLTensor& tensor);

}  // namespace finegemm::python
