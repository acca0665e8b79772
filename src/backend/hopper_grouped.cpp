// Grouped GEMMs on Hopper GPUs. Layer backend. The sizes of the groups stay on the device: a launch depends on what
// there may be of rows, and on what is expected of them.
#include <algorithm>
#include <mutex>

#include <finegemm/gemm/schedule.h>

#include "backend/groups.h"
#include "backend/hopper_backend.h"

namespace finegemm {

namespace {

/// Rows of A of all groups together, at most.
int64_t capacity(const GroupedGemmArgs& args) { return args.a.matrix.rows * args.a.count; }

plan::Problem problem_of(const GroupedGemmArgs& args, const GemmOptions& options) {
    const int64_t most = INT32_MAX;
    const bool indices = args.groups.form == GroupForm::Indices;
    return {.m = static_cast<uint32_t>(std::min(capacity(args), most)),
            .n = static_cast<uint32_t>(args.d.matrix.cols),
            .k = static_cast<uint32_t>(args.a.matrix.cols),
            .batch_invariant = false,  // all kernels are
            .num_sms = static_cast<uint32_t>(options.num_sms),
            .b_scales = ScaleBlocks::Blocks,
            .output = Output::BF16,
            .groups = static_cast<uint32_t>(args.b.count),
            .expected_m = static_cast<uint32_t>(std::min(args.groups.expected_m, most)),
            .alignment = indices ? static_cast<uint32_t>(args.groups.alignment) : 0};
}

GroupedKey key_of(const GroupedGemmArgs& args, const GemmOptions& options) {
    const auto& [a, sfa, b, sfb, d, groups] = args;
    const GemmArgs first{a.matrix, sfa.matrix, b.matrix, sfb.matrix, d.matrix};
    return {.call = call_key(first, false, false, options),
            .groups = groups.data,
            .form = static_cast<int64_t>(groups.form),
            .group_count = b.count,
            .alignment = groups.alignment,
            .expected_m = groups.expected_m,
            .a_stack = a.stride,
            .b_stack = b.stride,
            .d_stack = d.stride,
            .sfa_stack = sfa.stride,
            .sfb_stack = sfb.stride};
}

/// Cluster tiles that there may be: each group has at most one that is not whole.
uint32_t most_tiles(const plan::Problem& p, const GemmConfig& c) {
    const uint64_t below = p.m / c.tile_m + p.groups;
    return static_cast<uint32_t>(below * ceil_div(p.n, c.tile_n * cluster_tiles_n(c)));
}

bool has_scale_vectors(const ConstStack& sfa, uint32_t k_blocks) {
    return finegemm::has_scale_vectors(view_of(sfa.matrix), k_blocks, 1) &&
           (sfa.count == 1 || sfa.stride % kScaleVectorBlocks == 0);
}

}  // namespace

GroupedCall HopperBackend::prepare(const GroupedGemmArgs& args, const GemmKernel& kernel,
                                   const plan::Problem& problem) const {
    const GemmConfig& c = kernel.config;
    const auto rows = [&](uint32_t count) { return map_of("a", args.a, load_box(c.a, count)); };
    const LoadBoxes b = b_boxes(c, problem.n);
    const uint32_t a_rows = c.tile_m / c.a_sharers();
    const uint32_t expected = problem.expected_m > 0 ? problem.expected_m : problem.m / problem.groups;
    const bool streaming = expected <= kStreamingGroupRows;

    GroupedCall call{.params = {}, .grid = 0, .kernel = &kernel.kernel};
    GroupedParams& p = call.params;
    static_cast<GemmParams&>(p) = {.raster = raster_of_columns(c, problem.n),
                                   .m = 0,
                                   .n = problem.n,
                                   .k_blocks = problem.k_blocks(),
                                   .a_rows_of_last = 0,
                                   .b_rows_of_last = b_rows_of_last(c, problem.n),
                                   .a_policy = streaming ? kEvictLast : kEvictNormal,
                                   .b_policy = streaming ? kEvictFirst : kEvictNormal,
                                   .sfa = view_of(args.sfa.matrix),
                                   .sfb = view_of(args.sfb.matrix),
                                   .d_data = args.d.matrix.data,
                                   .d_row_stride = args.d.matrix.row_stride,
                                   .accumulate = 0,
                                   .prefetch_weights = 0,
                                   .a = {.whole = rows(a_rows), .last = {}},
                                   .b = {.whole = map_of("b", args.b, b.whole), .last = map_of("b", args.b, b.last)}};
    for (uint32_t segment = 1; segment < n_segments(c); ++segment)
        p.b_segments[segment - 1] = map_of("b", args.b, b_segment_box(c, segment));
    set_d_maps(p, c, args.d);
    p.groups = layout_of(args);
    p.both_ends = streaming;  // else a wave of tiles shall be of few groups, whose operands then are in L2
    for (uint32_t i = 0; i < kRowBoxes; ++i) p.a_rows[i] = rows(std::min(1u << i, a_rows));
    p.expected = ExpectedGroups::of(c, p.raster, expected);
    p.sfa_stride = args.sfa.stride;
    p.sfb_stride = args.sfb.stride;
    p.d_stride = args.d.stride;
    call.grid = grid_size(c, most_tiles(problem, c), clusters_for(kernel, problem));
    return call;
}

std::shared_ptr<const GroupedCall> HopperBackend::make_grouped_call(GroupedKey& key, const std::string& config,
                                                                    const GroupedGemmArgs& args,
                                                                    const plan::Problem& problem) {
    const GemmKernel& kernel = config.empty() ? chosen(problem) : named(problem, config);
    if (!config.empty()) key.call.named = &kernel;
    const GemmKernel& variant = variant_of(kernel, has_scale_vectors(args.sfa, problem.k_blocks()));
    auto call = std::make_shared<const GroupedCall>(prepare(args, variant, problem));
    const std::unique_lock lock(mutex_);
    if (grouped_calls_.size() >= kMaxKept) grouped_calls_.clear();
    return grouped_calls_.try_emplace(key, std::move(call)).first->second;
}

void HopperBackend::grouped_gemm(const GroupedGemmArgs& args, const GemmOptions& options) {
    GroupedKey key = key_of(args, options);
    std::shared_ptr<const GroupedCall> call = find_call(grouped_calls_, key, key.call, options.config);
    const cuda::CurrentDevice current(device_);
    if (!call) call = make_grouped_call(key, options.config, args, problem_of(args, options));
    call->kernel->launch(call->grid, &call->params, options.stream, options.pdl);
}

}  // namespace finegemm
