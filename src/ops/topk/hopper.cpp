// Selections as launches. Layer engine.
#include "ops/topk/hopper.h"

#include <algorithm>

namespace finegemm {

namespace {

/// CTAs of a launch, whose clusters then walk over rows.
constexpr uint32_t kMaxGrid = 1u << 20;

/// Columns of a CTA below which another one costs more than it saves.
constexpr int64_t kFewColumns = 8192;

}  // namespace

TopkConfig topk_config(int64_t rows, int64_t width, uint32_t sms) {
    TopkConfig c;
    const auto grows = [&] {
        const bool idle = rows * c.ctas * 2 <= sms;
        return width > int64_t{c.ctas} * kTopkMostColumns || (idle && width > c.ctas * kFewColumns);
    };
    while (c.ctas < TopkConfig::kMostCtas && grows()) c.ctas *= 2;
    return c;
}

TopkLaunch launch_of(const TopkCall& call, const cuda::Driver&, uint32_t sms) {
    const bool limited = call.options.num_sms > 0;
    const uint32_t usable = limited ? std::min(static_cast<uint32_t>(call.options.num_sms), sms) : sms;
    const TopkParams params = topk_params(call);
    const TopkConfig config = topk_config(call.rows(), call.logits.cols, usable);
    const uint32_t most = limited ? usable * config.ctas_per_sm() : kMaxGrid;
    return {config, params, std::clamp(most / config.ctas, 1u, params.rows) * config.ctas};
}

}  // namespace finegemm
