// Calls of routing as launches. Layer engine.
#include "ops/routing/hopper.h"

#include <algorithm>

#include "ops/expert_bias.h"

namespace finegemm {

namespace {

/// Choices from which on a cluster is faster than one CTA, which needs no barriers of one.
constexpr int64_t kManyChoices = 2048;

/// CTAs of a kernel, which then walks over its tasks.
constexpr uint32_t kMaxGrid = 1u << 20;

ChosenRows chosen_of(const ConstMatrix& inverse) {
    return {.inverse = static_cast<const int32_t*>(inverse.data),
            .row_stride = inverse.row_stride,
            .tokens = static_cast<uint32_t>(inverse.rows),
            .k = static_cast<uint32_t>(inverse.cols)};
}

RouteParams params_of(const RouteCall& call) {
    return {.ids = static_cast<const uint8_t*>(call.ids.data),
            .inverse = static_cast<int32_t*>(call.inverse.data),
            .permutation = static_cast<int32_t*>(call.permutation.data),
            .numbers = static_cast<int32_t*>(call.numbers.data),
            .stored = call.stored,
            .ids_row_stride = call.ids.row_stride,
            .inverse_row_stride = call.inverse.row_stride,
            .first = call.first,
            .choices = static_cast<uint32_t>(call.choices()),
            .wide = call.ids.dtype == DType::I64,
            .by_k = Divider::by(static_cast<uint32_t>(call.ids.cols)),
            .places = call.places()};
}

template <typename Config>
uint32_t grid_of(const Config& config, uint32_t tasks, int32_t num_sms) {
    const uint32_t most = num_sms > 0 ? static_cast<uint32_t>(num_sms) * config.ctas_per_sm() : kMaxGrid;
    return std::min({ceil_div(tasks, config.warps()), most, kMaxGrid});
}

}  // namespace

RouteConfig route_config(int64_t choices) { return {choices > kManyChoices ? RouteConfig::kMostCtas : 1}; }

RouteLaunch launch_of(const RouteCall& call) {
    const RouteConfig config = route_config(call.choices());
    return {config, params_of(call), config.ctas};
}

CountedChoices counted_choices(const RouteCall& call) {
    const RouteParams p = params_of(call);
    return {p.ids, p.ids_row_stride, p.first, p.choices, p.wide, p.by_k};
}

PermuteLaunch launch_of(const PermuteCall& call) {
    const PermuteConfig config{call.quantizes(), call.route != nullptr};
    const int64_t bytes = size_of(call.x.dtype);
    const auto row_bytes = static_cast<uint32_t>(call.x.cols * bytes);
    const uint32_t chunks = ceil_div(row_bytes, config.chunk_bytes()), tokens = static_cast<uint32_t>(call.x.rows);
    const uint32_t parts = chunks * (config.routes ? static_cast<uint32_t>(call.inverse.cols) : 1);
    const PermuteParams params{.x = static_cast<const uint8_t*>(call.x.data),
                               .q = static_cast<uint8_t*>(call.q.matrix.data),
                               .x_scales = static_cast<const float*>(call.x_scales.data),
                               .scales = static_cast<float*>(call.scales.matrix.data),
                               .chosen = chosen_of(call.inverse),
                               .q_rows = rows_of(call.q, size_of(call.q.matrix.dtype)),
                               .scale_rows = rows_of(call.scales, 1),
                               .x_row_stride = call.x.row_stride * bytes,
                               .x_scale_row_stride = call.x_scales.row_stride,
                               .x_scale_col_stride = call.x_scales.col_stride,
                               .scale_col_stride = call.scales.matrix.col_stride,
                               .row_bytes = row_bytes,
                               .scale_blocks = ceil_div(static_cast<uint32_t>(call.x.cols), kScaleBlock),
                               .power_of_two = call.options.power_of_two_scales,
                               .by_parts = Divider::by(parts),
                               .tasks = tokens * parts,
                               .weights = static_cast<const float*>(call.weights.data),
                               .weight_row_stride = call.weights.row_stride,
                               .weights_of_rows = static_cast<float*>(call.weights_of_rows.data),
                               .sums = static_cast<uint8_t*>(call.sums.data),
                               .sum_row_stride = call.sums.row_stride * size_of(DType::BF16),
                               .coming = call.coming,
                               .route = call.route ? params_of(*call.route) : RouteParams{}};
    return {config, params, grid_of(config, params.tasks, call.options.num_sms)};
}

CombineLaunch launch_of(const CombineCall& call) {
    const CombineConfig config{call.route && !call.has_bias(), call.has_bias()};
    const int64_t bytes = size_of(DType::BF16);
    const auto row_bytes = static_cast<uint32_t>(call.out.cols * bytes);
    const uint32_t chunks = ceil_div(row_bytes, config.chunk_bytes());
    const CombineParams params{.y = static_cast<const uint8_t*>(call.y.matrix.data),
                               .weights = static_cast<const float*>(call.weights.data),
                               .out = static_cast<uint8_t*>(call.out.data),
                               .chosen = chosen_of(call.inverse),
                               .y_rows = rows_of(call.y, bytes),
                               .weight_row_stride = call.weights.row_stride,
                               .out_row_stride = call.out.row_stride * bytes,
                               .row_bytes = row_bytes,
                               .by_parts = Divider::by(chunks),
                               .tasks = static_cast<uint32_t>(call.out.rows) * chunks,
                               .route = call.route ? params_of(*call.route) : RouteParams{},
                               .biases = bias_of(call.biases),
                               .bias_weights = static_cast<const float*>(call.bias_weights.data),
                               .bias_weight_row_stride = call.bias_weights.row_stride,
                               .counts = call.counts};
    return {config, params, grid_of(config, params.tasks, call.options.num_sms)};
}

}  // namespace finegemm
