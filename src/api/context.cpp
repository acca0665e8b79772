// Contexts. Layer api.
#include "api/context.h"

#include <set>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "api/options.h"
#include "engine/cpu.h"
#include "engine/hopper.h"

namespace finegemm {

Backend& ContextState::backend(Device device) {
    const bool cpu = device.type == DeviceType::Cpu;
    if (!cpu && (device.index < 0 || device.index >= kMaxDevices))
        throw Error(Errc::InvalidArgument, fmt::format("device {}: must be from 0 to {}; pass the index of a GPU",
                                                       device.index, kMaxDevices - 1));
    std::atomic<Backend*>& slot = made_[cpu ? 0 : static_cast<size_t>(device.index) + 1];
    if (Backend* made = slot.load(std::memory_order_acquire)) return *made;
    auto own = cpu ? make_cpu_backend(options) : make_hopper_backend(options, device.index);
    Backend* first = nullptr;
    return slot.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel) ? *own.release() : *first;
}

std::vector<std::string> ContextState::problems() const {
    std::set<std::string> lines;
    for (const std::atomic<Backend*>& slot : made_)
        if (const Backend* made = slot.load(std::memory_order_acquire))
            for (const plan::Problem& problem : made->problems()) lines.insert(plan::text_of(problem));
    return {lines.begin(), lines.end()};
}

ContextState::~ContextState() {
    for (const std::atomic<Backend*>& made : made_) delete made.load(std::memory_order_acquire);
}

Context::Context(Options options) {
    check_options(options);
    state_ = std::make_unique<ContextState>(std::move(options));
}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
const Options& Context::options() const { return state_->options; }

}  // namespace finegemm
