// Toolchains: what turns a kernel's source into a cubin for sm_90a. Layer jit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <finegemm/context.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

class Toolchain {
public:
    virtual ~Toolchain() = default;
    /// Kind, version and options: everything of the toolchain that decides about the bytes it makes. No paths.
    virtual std::string identity() const = 0;
    /// Where it was found.
    virtual std::string path() const = 0;
    struct Output {
        std::string cubin, log;
    };
    /// Throws Error(Compile) with the compiler's log.
    virtual Output compile(const KernelSource& source) const = 0;
};

/// What a search for a toolchain came to, for people: `finegemm doctor` prints it.
struct Search {
    std::unique_ptr<Toolchain> found;   // null: none
    std::vector<std::string> tried;     // places, each with what was wrong there
};

Search find_nvrtc(const Options& options);
Search find_nvcc(const Options& options);

/// The one that the options ask for. Throws Error(Compile) with all places that were searched.
std::unique_ptr<Toolchain> find_toolchain(const Options& options);

}  // namespace finegemm::jit
