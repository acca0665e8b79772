// A layer of experts over ranks on a GPU: its memory, and where rows are in messages, as a launch. Layer engine.
#include "ops/ep/hopper.h"

#include <deque>

#include <finegemm/error.h>

#include "engine/hopper_backend.h"
#include "ops/ep/steps.h"

namespace finegemm {

SlotsLaunch launch_of(const SlotsCall& call) {
    constexpr SlotsConfig kConfig;
    constexpr uint32_t kMaxGrid = 512;  // it walks over its tasks, which are short
    return {kConfig, call.params, min(ceil_div(call.params.tasks(), kConfig.threads()), kMaxGrid)};
}

void HopperBackend::run_ep_moe(const EpMoeCall& call) {
    if (call.how.capacity == 0 || call.check_values) {
        int capturing = 0;
        driver_->check(driver_->api.StreamIsCapturing(call.options.stream, &capturing), "cuStreamIsCapturing");
        if (capturing != 0)
            throw Error(Errc::InvalidArgument,
                        "capacity: is 0, or check_values is set, which wait for the GPU, but a "
                        "graph captures the stream; pass a capacity, without check_values");
    }
    std::deque<cuda::StreamMemory> taken;
    run_steps(*this, call, [&](int64_t bytes) {
        return taken.emplace_back(memory(), static_cast<size_t>(bytes), call.options.stream).data();
    });
}

}  // namespace finegemm
