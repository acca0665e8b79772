// The kernel headers as text: what the compilers are given instead of an include directory. Layer jit.
#pragma once

#include <span>
#include <string_view>

namespace finegemm::jit {

struct KernelFile {
    std::string_view name;  // as in #include: "finegemm/core/base.h"
    std::string_view text;
};

std::span<const KernelFile> kernel_files();

}  // namespace finegemm::jit
