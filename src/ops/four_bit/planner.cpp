// Which product weights of 4 bits take on a GPU. Layer engine.
#include "ops/four_bit/planner.h"

#include <algorithm>
#include <cmath>

namespace finegemm {

namespace {

/// Microseconds of an H200: of a launch with its first stage and its last store, and of a k-block of a tile of up to
/// 16, 32 and 48 rows, in a CTA among those of all SMs. Fitted to bench/results/four_bit_h200.json, all rows of which
/// are within 7%.
constexpr double kLaunch = 4;
constexpr double kBlockMxfp4[] = {0.615, 0.69, 0.79}, kBlockInt4[] = {0.665, 0.77, 0.855};
/// The part of memory's speed that loads of packed weights reach.
constexpr double kLoadSpeed = 0.87;

/// A k-block of a tile of so many rows, where so many CTAs load at once.
double block_us(FourBitFormat format, double rows, double ctas, const plan::DeviceSpec& d) {
    const auto step = static_cast<size_t>(std::clamp(std::ceil(rows / kFourBitBoxRows), 1.0, 3.0)) - 1;
    const double decoded = (format == FourBitFormat::Mxfp4 ? kBlockMxfp4 : kBlockInt4)[step] / d.clock_ratio;
    const double loaded = ctas * kFourBitBlocks * kFourBitBlockBytes / (kLoadSpeed * d.hbm_bytes_per_us);
    return std::max(decoded, loaded);
}

}  // namespace

GemmShape fp8_shape(const FourBitShape& s) {
    return {.m = s.m,
            .n = s.n,
            .k = s.k,
            .row_b_scales = s.format == FourBitFormat::Int4,
            .out_dtype = DType::BF16,
            .groups = s.groups,
            .expected_m = s.expected_m,
            .alignment = s.alignment,
            .num_sms = s.num_sms,
            .batch_invariant = true};
}

FourBitFormat format_of(const plan::Problem& fp8) {
    return fp8.b.scaling == Scaling::Rows ? FourBitFormat::Int4 : FourBitFormat::Mxfp4;
}

FourBitCost four_bit_cost(const plan::Problem& fp8, const plan::DeviceSpec& d) {
    const auto [groups, rows] = fp8.groups.of_rows() > 0 ? fp8.busy_groups() : plan::BusyGroups{1, double(fp8.m)};
    const uint32_t sms = plan::has_sm_budget(fp8, d) ? fp8.num_sms : d.sms;
    const double of_rows = std::ceil(rows / kFourBitRows), last = rows - (of_rows - 1) * kFourBitRows;
    const double tiles = groups * of_rows * std::ceil(fp8.n / double{kFourBitCols}),
                 ctas = std::min(tiles, double(sms));
    const auto block = [&](double of_tile) { return block_us(format_of(fp8), of_tile, ctas, d); };
    const double mean = ((of_rows - 1) * block(kFourBitRows) + block(last)) / of_rows;
    return {kLaunch + std::ceil(tiles / ctas) * fp8.k_blocks() * mean, static_cast<uint32_t>(tiles),
            static_cast<uint32_t>(ctas)};
}

bool is_fp8_faster(const plan::Problem& fp8, const plan::DeviceSpec& device, const plan::PlanTable* user) {
    const GemmConfig config = plan::choose(fp8, device, user).config;
    return plan::cost(fp8, device, config).total < four_bit_cost(fp8, device).us;
}

}  // namespace finegemm
