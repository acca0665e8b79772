// Matrices to files. Layer cli.
#pragma once

#include <string>

#include "cli/files/files.h"
#include "workbench/whole_file.h"

namespace finegemm::cli {

/// A file that gets one matrix, whole or not at all.
class OutputFile {
public:
    /// "FILE.npy" or "FILE.safetensors:TENSOR", "d" without a TENSOR. Throws Error(InvalidArgument) for any other name,
    /// Error(Io) for a file that cannot be written: before the long work that makes the matrix.
    explicit OutputFile(const std::string& name);

    /// In the matrix's dtype; bf16 becomes f32 in .npy, for which NumPy has a name. Reads it back and compares. Throws
    /// Error(Io).
    void write(const HostMatrix& matrix);

private:
    MatrixName name_;
    WholeFile file_;
};

}  // namespace finegemm::cli
