// Matrices from files. Layer cli.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <finegemm/tensor.h>

namespace finegemm::cli {

/// A matrix in host memory, rows one after the other.
struct HostMatrix {
    DType dtype = DType::F32;
    int64_t rows = 0, cols = 0;
    std::vector<uint8_t> bytes;
    std::string untyped{};  // the type that its file has, where that says only how wide numbers are: dtype is a guess

    Matrix view() { return {bytes.data(), dtype, rows, cols, cols, 1, {}}; }
    ConstMatrix view() const { return {bytes.data(), dtype, rows, cols, cols, 1, {}}; }
};

/// Throws Error(OutOfMemory) for what no machine holds.
HostMatrix make_matrix(DType dtype, int64_t rows, int64_t cols);

/// A matrix of a file, as command lines name it: "FILE.npy" or "FILE.safetensors:TENSOR".
struct MatrixName {
    std::string path, tensor;
    bool safetensors = false;
};
/// Throws Error(InvalidArgument) for any other name.
MatrixName name_of_matrix(const std::string& text);

/// `as`: what the numbers are, for a file that says only how wide they are. Throws Error(Io) for a file that does not
/// hold the matrix, saying what it has and what is wanted.
HostMatrix read_matrix(const MatrixName& name, std::optional<DType> as = {});

}  // namespace finegemm::cli
