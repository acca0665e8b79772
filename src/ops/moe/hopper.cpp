// A layer of experts on a GPU: which way it takes, and its memory. Layer engine.
#include "engine/hopper_backend.h"
#include "ops/moe/planner.h"
#include "ops/moe/steps.h"

namespace finegemm {

bool HopperBackend::is_fused_faster(const MoeShape& shape) {
    return answer_of(fused_[shape.four_bit ? 1 : 0], plan::problem_of(gate_up_shape(shape, true)),
                     [&] { return finegemm::is_fused_faster(shape, spec_, &table_); });
}

bool HopperBackend::is_storing_sums_faster(const MoeShape& shape) {
    return answer_of(stores_sums_, plan::problem_of(down_shape(shape, true)),
                     [&] { return finegemm::is_storing_sums_faster(shape, spec_, &table_); });
}

/// Memory is given back behind the last launch, in the order of the stream.
void HopperBackend::run_moe(const MoeCall& call) {
    const MoeShape shape = call.shape();
    MoeForms forms = forms_of(
        shape, [&](const FourBitShape& product) { return is_fp8_faster(product); },
        [&] { return is_fused_faster(shape); }, [&] { return is_storing_sums_faster(shape); });
    if (call.elsewhere || call.check_values) forms.stores_sums = false;
    if (call.workspace) return run_steps(*this, call, forms, call.workspace);
    const auto bytes = static_cast<size_t>(memory_of(shape, forms.fused).bytes);
    const cuda::StreamMemory workspace(memory(), bytes, call.options.stream);
    run_steps(*this, call, forms, workspace.data());
}

}  // namespace finegemm
