// Waiting for kernels in steps. Layer engine.
#include "engine/polled_provider.h"

#include <chrono>

namespace finegemm {

PolledProvider::~PolledProvider() {
    if (!process_.is_this()) new auto(std::move(left_));  // whose destructors would wait
}

jit::Binary PolledProvider::get(const jit::KernelSource& source, const Poll& poll) {
    if (!poll) return provider_(source);
    auto binary = std::async(std::launch::async, [this, source] { return provider_(source); });
    try {
        while (binary.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) poll(0);
    } catch (...) {
        const std::scoped_lock lock(mutex_);
        left_.push_back(std::move(binary));
        throw;
    }
    return binary.get();
}

}  // namespace finegemm
