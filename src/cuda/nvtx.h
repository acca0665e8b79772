// Ranges of NVTX, which profilers show beside the GPU's work. Layer cuda.
#pragma once

#include <string>

namespace finegemm::cuda {

/// Functions of a profiler. A range ends on the thread that it began on.
struct Nvtx {
    int (*push)(const char* text) = nullptr;
    int (*pop)() = nullptr;
};

/// Hands this library's table of NVTX functions to a profiler, whose library `injection` is, and returns what it has
/// put there; null where it is no profiler's, or takes no ranges. A profiler stays for the life of the process: later
/// calls return the first one that was found, whatever they name.
const Nvtx* attach_nvtx(const std::string& injection);

/// A range from here to the end of the scope; none without a profiler.
class NvtxRange {
public:
    NvtxRange(const Nvtx* nvtx, const std::string& text) : nvtx_(nvtx) {
        if (nvtx_) nvtx_->push(text.c_str());
    }
    ~NvtxRange() {
        if (nvtx_) nvtx_->pop();
    }
    NvtxRange(const NvtxRange&) = delete;
    NvtxRange& operator=(const NvtxRange&) = delete;

private:
    const Nvtx* nvtx_;
};

}  // namespace finegemm::cuda
