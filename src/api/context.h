// State of a Context: a backend for each device, made when it is first needed. Layer api.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "cuda/nvtx.h"
#include "engine/backend.h"

namespace finegemm {

struct ContextState {
    explicit ContextState(Options o) : options(std::move(o)), nvtx(cuda::attach_nvtx(options.nvtx_path)) {}
    ~ContextState();
    ContextState(const ContextState&) = delete;
    ContextState& operator=(const ContextState&) = delete;

    /// Throws what making the backend throws; the next call tries again. Without a lock, which a child of fork could
    /// find locked: of threads that make one at the same time the first wins.
    Backend& backend(Device device);
    /// Lines of the problems that calls on GPUs had, sorted.
    std::vector<std::string> problems() const;

    /// Does anybody want to hear of calls?
    bool observed() const { return nvtx || options.log; }

    const Options options;
    const cuda::Nvtx* const nvtx;  // null without a profiler

private:
    static constexpr int32_t kMaxDevices = 64;
    std::array<std::atomic<Backend*>, kMaxDevices + 1> made_{};  // owned; the CPU's is the first
};

}  // namespace finegemm
