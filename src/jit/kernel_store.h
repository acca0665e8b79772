// KernelStore: from a kernel's source to its cubin, by the shortest way: pack, disk cache, compiler.
// Layer jit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <finegemm/context.h>

namespace finegemm::jit {

/// A complete translation unit whose only entry is `extern "C" __global__ entry`. It includes <finegemm/...> headers
/// only.
struct KernelSource {
    std::string entry;
    std::string text;
    uint32_t yield_interval = 0;  // what set_yield_hints gives its machine code
};

/// The newest major version of CUDA that is known to make good code.
inline constexpr int kNewestCuda = 13;

enum class Origin { Pack, Disk, Compiled };
constexpr const char* name_of(Origin origin) {
    return origin == Origin::Pack ? "pack" : origin == Origin::Disk ? "disk" : "compiled";
}

struct Binary {
    std::string cubin;
    std::string entry;
    Origin origin = Origin::Compiled;
    double milliseconds = 0;  // what getting it took
};

/// Thread-safe. One process compiles a kernel once; of several processes one compiles and the others wait for its file.
class KernelStore {
public:
    /// `newest_cuda`: the newest major version of CUDA whose code can be loaded.
    explicit KernelStore(const Options& options, int newest_cuda = kNewestCuda);
    ~KernelStore();

    /// For sm_90a. Throws Error(Compile) with the log and with the places where a compiler was looked for.
    Binary get(const KernelSource& source) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace finegemm::jit
