// A layer of experts on a GPU: which way it takes, and its memory. Layer engine.
#include <mutex>

#include "engine/hopper_backend.h"
#include "ops/moe/planner.h"
#include "ops/moe/steps.h"

namespace finegemm {

bool HopperBackend::is_fused_faster(const MoeShape& shape) {
    const plan::Problem problem = plan::problem_of(gate_up_shape(shape, true));
    auto& known = fused_[shape.four_bit ? 1 : 0];
    {
        const std::shared_lock lock(mutex_);
        if (const auto found = known.find(problem); found != known.end()) return found->second;
    }
    const bool faster = finegemm::is_fused_faster(shape, spec_, &table_);
    const std::unique_lock lock(mutex_);
    if (known.size() >= kMaxKept) known.clear();
    return known.try_emplace(problem, faster).first->second;
}

/// Memory is given back behind the last launch, in the order of the stream.
void HopperBackend::run_moe(const MoeCall& call) {
    const MoeShape shape = call.shape();
    const MoeForms forms = forms_of(
        shape, [&](const FourBitShape& product) { return is_fp8_faster(product); },
        [&] { return is_fused_faster(shape); });
    if (call.workspace) return run_steps(*this, call, forms, call.workspace);
    const auto bytes = static_cast<size_t>(memory_of(shape, forms.fused).bytes);
    const cuda::StreamMemory workspace(memory(), bytes, call.options.stream);
    run_steps(*this, call, forms, workspace.data());
}

}  // namespace finegemm
