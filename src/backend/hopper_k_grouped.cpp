// K-grouped GEMMs on Hopper GPUs. Layer backend. What is kept of a call depends on the number of groups, not on their
// sizes: those stay on the device, or go into the parameters of each launch.
#include <algorithm>
#include <mutex>

#include <finegemm/gemm/schedule.h>

#include "backend/cpu_k_grouped.h"
#include "backend/groups.h"
#include "backend/hopper_backend.h"

namespace finegemm {

namespace {

bool has_host_offsets(const KGroupedGemmArgs& args) { return args.offsets_device.type == DeviceType::Cpu; }

KGroupedKey key_of(const KGroupedGemmArgs& args, bool batch_invariant, const GemmOptions& options) {
    const auto& [a, sfa, b, sfb, d, offsets, groups, device, layout] = args;
    return {.call = call_key({a, sfa, b, sfb, d.matrix}, true, batch_invariant, options),
            .offsets = has_host_offsets(args) ? nullptr : offsets,
            .groups = groups,
            .d_stack = d.stride};
}

}  // namespace

std::shared_ptr<const KGroupedCall> HopperBackend::make_k_grouped_call(KGroupedKey& key, const KGroupedGemmArgs& args,
                                                                       const GemmOptions& options) {
    const plan::Problem problem = problem_of(args, key.call.batch_invariant != 0, options);
    const GemmKernel& kernel = options.config.empty() ? chosen(problem) : named(problem, options.config);
    if (!options.config.empty()) key.call.named = &kernel;
    // The operands are those of one product with all of K.
    const GemmArgs all{args.a, args.sfa, args.b, args.sfb, args.d.matrix};
    const bool vectors = has_scale_vectors(all, problem.k_blocks(), kernel.config);
    const GemmKernel& variant = variant_of(kernel, vectors);
    const Call one = prepare(all, variant, problem, key.call);
    KGroupedCall made{{.params = {}, .grid = 0, .kernel = one.kernel}, variant.config};
    static_cast<GemmParams&>(made.params) = one.params;
    made.params.groups = layout_of(args);
    made.params.groups.offsets = key.offsets;
    made.params.d_stride = args.d.stride;
    if (kernel_plan(variant.config).loads_source()) made.params.d[0] = map_of("d", args.d, kF32DBox);
    made.grid = grid_size(variant.config, one.params.raster.size() * problem.k_groups, clusters_for(variant, problem));
    auto call = std::make_shared<const KGroupedCall>(made);
    const std::unique_lock lock(mutex_);
    if (k_grouped_calls_.size() >= kMaxKept) k_grouped_calls_.clear();
    return k_grouped_calls_.try_emplace(key, std::move(call)).first->second;
}

/// Parameters of the launch for `count` groups from `first` on.
KGroupedParams HopperBackend::params_of(const KGroupedCall& call, const KGroupedGemmArgs& args, uint32_t first,
                                        uint32_t count) const {
    KGroupedParams p = call.params;
    const KGroupLayout all = layout_of(args);
    p.d_data = static_cast<float*>(p.d_data) + first * p.d_stride;
    p.first_group = first;
    p.groups.groups = count;
    std::copy_n(args.offsets + first, count + 1, p.host_offsets);
    p.blocks = args.layout == KLayout::Blocks;
    for (uint32_t i = 0; p.blocks && i < count; ++i) {
        const GemmArgs group = gemm_of(args, first + i, all.group(first + i));
        if (group.a.cols == 0) continue;  // nothing is loaded
        p.a_blocks[i] = map_of("a", group.a, load_box(call.config.a, call.config.tile_m));
        p.b_blocks[i] = map_of("b", group.b, load_box(call.config.b, call.config.tile_n));
    }
    return p;
}

/// Groups whose sizes the host knows: launches of about as many groups each, and of no more than parameters have room
/// for.
void HopperBackend::launch_host_groups(const KGroupedCall& call, const KGroupedGemmArgs& args,
                                       const GemmOptions& options) const {
    const uint32_t groups = call.params.groups.groups;
    const uint32_t launches = ceil_div(groups, args.layout == KLayout::Blocks ? kBlockGroups : kHostGroups);
    const uint32_t share = ceil_div(groups, launches);
    for (uint32_t first = 0; first < groups; first += share) {
        const KGroupedParams p = params_of(call, args, first, std::min(share, groups - first));
        const uint32_t grid = std::min(call.grid, p.raster.size() * p.groups.groups);
        call.kernel->launch(grid, &p, options.stream, options.pdl);
    }
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
    KGroupedKey key = key_of(args, options.batch_invariant.value_or(batch_invariant_), options);
    std::shared_ptr<const KGroupedCall> call = find_call(k_grouped_calls_, key, key.call, options.config);
    const cuda::CurrentDevice current(device_);
    if (!call) call = make_k_grouped_call(key, args, options);
    if (has_host_offsets(args)) return launch_host_groups(*call, args, options);
    call->kernel->launch(call->grid, &call->params, options.stream, options.pdl);
}

}  // namespace finegemm
