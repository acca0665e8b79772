// State of a Context: a backend for each device, made when it is first needed. Layer api.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/backend.h"

namespace finegemm {

struct ContextState {
    explicit ContextState(Options o) : options(std::move(o)) {}

    /// Throws what making the backend throws; the next call tries again.
    Backend& backend(Device device);

    const Options options;

private:
    static constexpr int32_t kMaxDevices = 64;
    std::array<std::atomic<Backend*>, kMaxDevices + 1> made_{};  // the CPU's is the first
    std::mutex mutex_;
    std::vector<std::unique_ptr<Backend>> owned_;
};

}  // namespace finegemm
