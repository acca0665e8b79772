// A layer of experts over ranks on a GPU: its memory, and its kernels' launches. Layer engine.
#include "ops/ep/hopper.h"

#include <algorithm>
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

namespace {

/// As many CTAs as there are at once, or as rows want. `rows`: the most that there may be.
uint32_t grid_of(int64_t rows, uint32_t chunks, int32_t num_sms, uint32_t sms) {
    constexpr PeersConfig kAny;
    const int64_t most = (num_sms > 0 ? num_sms : static_cast<int64_t>(sms)) * kAny.most_per_sm();
    return static_cast<uint32_t>(std::clamp<int64_t>((rows * chunks + kAny.warps - 1) / kAny.warps, 1, most));
}

}  // namespace

PullLaunch launch_of(const PullCall& call, const cuda::Driver&, uint32_t sms) {
    PullParams params = call.params;
    const PeerView& v = params.peers;
    const uint32_t chunks = ceil_div(v.value_bytes, PeersConfig::chunk_bytes());
    params.by_ranks = Divider::by(v.ranks), params.by_chunks = Divider::by(chunks);
    return {{.pushes = false}, params, grid_of(call.most_tokens * v.ranks, chunks, call.options.num_sms, sms)};
}

PushLaunch launch_of(const PushCall& call, const cuda::Driver&, uint32_t sms) {
    PushParams params = call.params;
    const PeerView& v = params.peers;
    const uint32_t chunks = ceil_div(v.result_bytes, PeersConfig::chunk_bytes());
    params.by_chunks = Divider::by(chunks);
    const int64_t rows = params.y ? int64_t{v.ranks} * v.capacity : 0;
    return {{.pushes = true}, params, grid_of(rows, chunks, call.options.num_sms, sms)};
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
    const TakeMemory take = [&](int64_t bytes) {
        return taken.emplace_back(memory(), static_cast<size_t>(bytes), call.options.stream).data();
    };
    run_steps(*this, call, take, true);
}

}  // namespace finegemm
