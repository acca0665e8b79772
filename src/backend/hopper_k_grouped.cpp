// K-grouped GEMMs on Hopper GPUs. Layer backend. The parts of K stay on the device: a launch depends on their number.
#include <mutex>

#include <finegemm/core/schedule.h>

#include "backend/groups.h"
#include "backend/hopper_backend.h"

namespace finegemm {

namespace {

KGroupedKey key_of(const KGroupedGemmArgs& args, const GemmOptions& options) {
    const auto& [a, sfa, b, sfb, d, offsets, groups, device] = args;
    return {.call = {.a = a.data,
                     .sfa = sfa.data,
                     .b = b.data,
                     .sfb = sfb.data,
                     .d = d.matrix.data,
                     .m = d.matrix.rows,
                     .n = d.matrix.cols,
                     .k = a.cols,
                     .batch_invariant = 0,
                     .num_sms = options.num_sms,
                     .a_stride = a.row_stride,
                     .b_stride = b.row_stride,
                     .d_stride = d.matrix.row_stride,
                     .sfa_row = sfa.row_stride,
                     .sfa_col = sfa.col_stride,
                     .sfb_row = sfb.row_stride,
                     .sfb_col = sfb.col_stride,
                     .row_b_scales = 1,
                     .f32_output = 1,
                     .accumulate = options.accumulate,
                     .named = nullptr},
            .offsets = offsets,
            .groups = groups,
            .d_stack = d.stride};
}

plan::Problem problem_of(const KGroupedGemmArgs& args, const GemmOptions& options) {
    return {.m = static_cast<uint32_t>(args.d.matrix.rows),
            .n = static_cast<uint32_t>(args.d.matrix.cols),
            .k = static_cast<uint32_t>(args.a.cols),
            .batch_invariant = false,   // all kernels are
            .num_sms = static_cast<uint32_t>(options.num_sms),
            .b_scales = ScaleBlocks::Rows,
            .output = Output::F32,
            .k_groups = static_cast<uint32_t>(args.groups)};
}

}  // namespace

std::shared_ptr<const KGroupedCall> HopperBackend::make_k_grouped_call(KGroupedKey& key, const KGroupedGemmArgs& args,
                                                                       const GemmOptions& options) {
    const plan::Problem problem = problem_of(args, options);
    const GemmKernel& kernel = options.config.empty() ? chosen(problem) : named(problem, options.config);
    if (!options.config.empty()) key.call.named = &kernel;
    // The operands are those of one product with all of K.
    const Call one = prepare({args.a, args.sfa, args.b, args.sfb, args.d.matrix}, kernel, problem, options.accumulate);
    KGroupedCall made{.params = {}, .grid = 0, .kernel = one.kernel};
    static_cast<GemmParams&>(made.params) = one.params;
    made.params.groups = layout_of(args);
    made.params.d_stride = args.d.stride;
    made.grid = grid_size(kernel.config, one.params.raster.size() * problem.k_groups, clusters_for(kernel, problem));
    auto call = std::make_shared<const KGroupedCall>(made);
    const std::unique_lock lock(mutex_);
    if (k_grouped_calls_.size() >= kMaxKept) k_grouped_calls_.clear();
    return k_grouped_calls_.try_emplace(key, std::move(call)).first->second;
}

void HopperBackend::k_grouped_gemm(const KGroupedGemmArgs& args, const GemmOptions& options) {
    if (args.a.cols == 0 && options.accumulate) return;
    if (args.a.cols == 0) {
        Matrix d = args.d.matrix;
        for (int64_t g = 0; g < args.groups; ++g) {
            d.data = static_cast<float*>(args.d.matrix.data) + g * args.d.stride;
            zero(d, options.stream);
        }
        return;
    }
    KGroupedKey key = key_of(args, options);
    std::shared_ptr<const KGroupedCall> call = find_call(k_grouped_calls_, key, key.call, options.config);
    const cuda::CurrentDevice current(device_);
    if (!call) call = make_k_grouped_call(key, args, options);
    call->kernel->launch(call->grid, &call->params, options.stream, options.pdl);
}

}  // namespace finegemm
