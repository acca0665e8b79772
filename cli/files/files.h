// Matrices from and to files. Layer cli.
#pragma once

#include <string>
#include <vector>

#include <finegemm/tensor.h>

namespace finegemm::cli {

/// A matrix in host memory, rows one after the other.
struct HostMatrix {
    DType dtype = DType::F32;
    int64_t rows = 0, cols = 0;
    std::vector<uint8_t> bytes;

    Matrix view() { return {bytes.data(), dtype, rows, cols, cols, 1, {}}; }
};

/// Throws Error(OutOfMemory) for what no machine holds.
HostMatrix make_matrix(DType dtype, int64_t rows, int64_t cols);

/// From "FILE.npy" or "FILE.safetensors:TENSOR". Throws Error(InvalidArgument) for another name, Error(Io) for a file
/// that does not hold the matrix, saying what it has and what is wanted.
HostMatrix read_matrix(const std::string& source);

/// Writes the matrix as f32, which NumPy reads and bf16 fits into. Throws Error(Io).
void write_npy(const std::string& path, const HostMatrix& bf16);

}  // namespace finegemm::cli
