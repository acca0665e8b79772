// Selections as launches. Layer engine.
#include "ops/topk/hopper.h"

#include <algorithm>

namespace finegemm {

namespace {

/// CTAs of a launch, whose clusters then walk over rows.
constexpr uint32_t kMaxGrid = 1u << 20;

/// Columns of a CTA below which another one costs more than it saves, where it keeps them and where it does not.
constexpr int64_t kFewColumns = 2048, kColumns = 8192;

/// The kernel that keeps each of few rows in as many CTAs as there are SMs for, or, where these have no room for it,
/// places. One CTA keeps a row of few columns faster.
TopkConfig few_rows_config(int64_t rows, int64_t width, uint32_t sms) {
    TopkConfig c{1, true};
    if (rows * 2 > sms || width <= kColumns) return {};
    const auto grows = [&] {
        if (rows * c.ctas * 2 <= sms && width > c.ctas * kFewColumns) return true;
        return rows * c.ctas * 2 <= int64_t{sms} * c.ctas_per_sm() && width > c.held_columns();
    };
    while (c.ctas < TopkConfig::kMostCtas && grows()) c.ctas *= 2;
    return c.ctas > 1 && width <= c.held_columns() ? c : TopkConfig{};
}

}  // namespace

TopkConfig topk_config(int64_t rows, int64_t width, uint32_t sms) {
    TopkConfig c = few_rows_config(rows, width, sms);
    if (c.few) return c;
    const auto grows = [&] {
        const bool idle = rows * c.ctas * 2 <= sms;
        return width > int64_t{c.ctas} * kTopkMostColumns || (idle && width > c.ctas * kColumns);
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
    const uint32_t grid = std::clamp(most / config.ctas, 1u, params.rows) * config.ctas;
    // Larger clusters leave some SMs of a GPC idle: as many again are counted.
    const uint32_t wanted = config.ctas > 2 ? 2 * grid : grid;
    const uint32_t share = call.of_logits ? ceil_div(wanted, sms) : config.ctas_per_sm();
    return {config, params, grid, call.options.pdl || call.of_logits, config.smem_bytes(share)};
}

}  // namespace finegemm
