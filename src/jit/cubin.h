// Cubins as ELF files: where their machine code lies, and a name for it. Layer jit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "jit/digest.h"

namespace finegemm::jit {

struct CodeSection {
    uint64_t offset, bytes;  // from the beginning of the file
};

/// The executable sections; none of what is no ELF file, or of a damaged one.
std::vector<CodeSection> code_sections(std::string_view cubin);

/// The major version of CUDA whose drivers, and newer ones, load a cubin.
int cuda_of(std::string_view cubin);

/// Names the machine code alone: names of kernels, line numbers and the compiler's notes do not count.
Digest code_digest(std::string_view cubin);

}  // namespace finegemm::jit
