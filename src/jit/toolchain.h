// Toolchains: what turns a kernel's source into a cubin for sm_90a. Layer jit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <finegemm/context.h>

#include "jit/kernel_store.h"
#include "jit/yield_hints.h"

namespace finegemm::jit {

class Toolchain {
public:
    virtual ~Toolchain() = default;
    /// Kind, version and options: everything of the toolchain that decides about the bytes it makes. No paths.
    virtual std::string identity() const = 0;
    /// Path at which it was found.
    virtual std::string path() const = 0;
    struct Output {
        std::string cubin, log;
    };
    /// Throws Error(Compile) with the compiler's log.
    Output compile(const KernelSource& source) const {
        Output out = translate(source);
        set_yield_hints(out.cubin, source.yield_interval);
        return out;
    }

protected:
    virtual Output translate(const KernelSource& source) const = 0;
};

/// Result of a search for a toolchain, for people: `finegemm doctor` prints it.
struct Search {
    std::unique_ptr<Toolchain> found;  // null: none
    std::vector<std::string> tried;    // paths, each with what was wrong there
};

/// `newest_cuda`: the newest major version whose code can be loaded. A driver takes code of its own major version and
/// of older ones; compilers that are newer are passed over.
Search find_nvrtc(const Options& options, int newest_cuda = kNewestCuda);
Search find_nvcc(const Options& options, int newest_cuda = kNewestCuda);

/// Predicts find_nvrtc(options).found->identity(), told by names of files. Loading the library instead takes 10 ms,
/// from a cold disk 200 ms. Empty if only loading tells.
std::string expected_nvrtc(const Options& options, int newest_cuda = kNewestCuda);

/// "path: nvcc 13.0 makes code that ...": why a compiler was passed over.
std::string too_new(const std::string& path, const std::string& compiler, int newest_cuda);

/// The package of PyPI with the newest NVRTC that is not too new.
const char* nvrtc_package(int newest_cuda);

/// For people without a compiler: where it was looked for, and what to do.
std::string not_found(Compiler compiler, const std::vector<std::string>& tried, int newest_cuda = kNewestCuda);

/// The one that the options ask for. Throws Error(Compile) with `not_found`.
std::unique_ptr<Toolchain> find_toolchain(const Options& options, int newest_cuda = kNewestCuda);

}  // namespace finegemm::jit
