// Tensor maps: descriptions of matrices for TMA. Layer cuda.
#pragma once

#include <finegemm/gemm/boxes.h>

#include "cuda/driver.h"

namespace finegemm::cuda {

/// A row-major matrix in global memory. Address and strides are multiples of 16 bytes.
struct GlobalMatrix {
    const void* data = nullptr;
    uint64_t rows = 0, cols = 0;
    uint64_t row_stride_bytes = 0;
    uint64_t count = 0, stride_bytes = 0;  // of a stack of such matrices; count 0: a single one, which has no index
    bool by_lines = false;                 // a miss brings 128 bytes to L2, never 256
    bool operator==(const GlobalMatrix&) const = default;
};

/// What lies outside of the matrix reads as zero and is not written.
TensorMap encode(const Driver& driver, const GlobalMatrix& matrix, const TmaBox& box);

}  // namespace finegemm::cuda
