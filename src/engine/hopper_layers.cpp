// The backend for Hopper GPUs: calls that are made of calls of others, which take memory. Layer engine.
#include <deque>
#include <mutex>

#include <finegemm/error.h>

#include "engine/hopper_backend.h"
#include "ops/ep/steps.h"
#include "ops/moe/planner.h"
#include "ops/moe/steps.h"

namespace finegemm {

bool HopperBackend::is_fused_faster(const MoeShape& shape) {
    const plan::Problem problem = plan::problem_of(gate_up_shape(shape, true));
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = fused_.find(problem); found != fused_.end()) return found->second;
    }
    const bool faster = finegemm::is_fused_faster(shape, spec_, &table_);
    const std::unique_lock lock(mutex_);
    if (fused_.size() >= kMaxKept) fused_.clear();
    return fused_.try_emplace(problem, faster).first->second;
}

/// Memory is given back behind the last launch, in the order of the stream.
void HopperBackend::run_moe(const MoeCall& call) {
    const MoeShape shape = call.shape();
    const std::optional<bool> rule = fused_by_rule(shape);
    const bool fused = rule ? *rule : is_fused_faster(shape);
    if (call.workspace) return run_steps(*this, call, fused, call.workspace);
    const auto bytes = static_cast<size_t>(memory_of(shape, fused).bytes);
    const cuda::StreamMemory workspace(memory(), bytes, call.options.stream);
    run_steps(*this, call, fused, workspace.data());
}

void HopperBackend::run_ep_moe(const EpMoeCall& call) {
    if (call.how.capacity == 0 || call.check_values) {
        int capturing = 0;
        driver_->check(driver_->api.StreamIsCapturing(call.options.stream, &capturing), "cuStreamIsCapturing");
        if (capturing != 0)
            throw Error(Errc::InvalidArgument, "capacity: is 0, or check_values is set, which wait for the GPU, but a "
                                               "graph captures the stream; pass a capacity, without check_values");
    }
    std::deque<cuda::StreamMemory> taken;
    run_steps(*this, call, [&](int64_t bytes) {
        return taken.emplace_back(memory(), static_cast<size_t>(bytes), call.options.stream).data();
    });
}

}  // namespace finegemm
