// Kernels from elsewhere, which a caller that polls need not wait for. Layer engine.
#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include <finegemm/context.h>

#include "engine/hopper.h"
#include "os/process.h"

namespace finegemm {

class PolledProvider {
public:
    explicit PolledProvider(KernelProvider provider) : provider_(std::move(provider)) {}
    /// Waits for what is still being made, but in a child of fork, which has none of the threads.
    ~PolledProvider();
    PolledProvider(const PolledProvider&) = delete;
    PolledProvider& operator=(const PolledProvider&) = delete;

    /// Calls `poll`, if there is one, with 0 while the kernel is made, on a thread of its own as a compiler cannot be
    /// interrupted. What `poll` throws ends the wait; the provider goes on and knows the kernel when it is asked again.
    jit::Binary get(const jit::KernelSource& source, const Poll& poll);

private:
    KernelProvider provider_;
    const os::Process process_;
    std::mutex mutex_;
    std::vector<std::future<jit::Binary>> left_;  // that nobody waits for
};

}  // namespace finegemm
