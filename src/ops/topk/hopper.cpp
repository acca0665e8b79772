// Selections as launches. Layer engine.
#include "ops/topk/hopper.h"

#include <algorithm>

namespace finegemm {

namespace {

/// CTAs of a launch, whose clusters then walk over rows.
constexpr uint32_t kMaxGrid = 1u << 20;

/// Columns below which another CTA costs more than it saves.
constexpr int64_t kFewColumns = 2048;

/// The stride of what there is one of may be anything.
int64_t stride_of(const ConstMatrix& x) { return x.rows > 1 ? x.row_stride : 0; }

}  // namespace

TopkParams topk_params(const TopkCall& call) {
    const TopkOutputs& out = call.out;
    return {.logits = static_cast<const float*>(call.logits.data),
            .logits_stride = stride_of(call.logits),
            .starts = static_cast<const int32_t*>(call.starts.data),
            .ends = static_cast<const int32_t*>(call.ends.data),
            .ends_stride = call.ends.rows > 1 ? call.ends.row_stride : 1,
            .indices = static_cast<int32_t*>(out.indices.data),
            .indices_stride = stride_of(out.indices),
            .values = static_cast<float*>(out.values.data),
            .values_stride = stride_of(out.values),
            .histogram = static_cast<int32_t*>(out.histogram.data),
            .histogram_stride = stride_of(out.histogram),
            .rows = static_cast<uint32_t>(call.rows()),
            .width = static_cast<uint32_t>(call.logits.cols),
            .k = static_cast<uint32_t>(call.k()),
            .each = static_cast<uint32_t>(call.each),
            .own_lengths = call.own_lengths,
            .sorted = call.options.sorted};
}

TopkConfig topk_config(int64_t rows, int64_t width, uint32_t sms) {
    TopkConfig c;
    const auto grows = [&] {
        const bool holds = width <= c.ctas * TopkConfig::held_columns();
        const bool idle = rows * c.ctas * 2 <= int64_t{sms} * TopkConfig::ctas_per_sm();
        return !holds || (idle && width > c.ctas * kFewColumns);
    };
    while (c.ctas < TopkConfig::kMostCtas && grows()) c.ctas *= 2;
    return c;
}

TopkLaunch launch_of(const TopkCall& call, const cuda::Driver&, uint32_t sms) {
    const bool limited = call.options.num_sms > 0;
    const uint32_t usable = limited ? std::min(static_cast<uint32_t>(call.options.num_sms), sms) : sms;
    const TopkParams params = topk_params(call);
    const TopkConfig config = topk_config(call.rows(), call.logits.cols, usable);
    const uint32_t most = limited ? usable * TopkConfig::ctas_per_sm() : kMaxGrid;
    return {config, params, std::clamp(most / config.ctas, 1u, params.rows) * config.ctas};
}

}  // namespace finegemm
