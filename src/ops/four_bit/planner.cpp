// Which product weights of 4 bits take on a GPU. Layer engine.
#include "ops/four_bit/planner.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace finegemm {

namespace {

/// Microseconds of an H200: of a launch with its first stage and its last store, and of a k-block of a tile of up to so
/// many rows in a CTA among those of all SMs. Fitted to bench/results/four_bit_h200.json and four_bit_many_h200.json.
/// With up to 48 rows kernels for many have not been timed.
constexpr double kLaunch = 4;
struct Block {
    double rows, us;
};
constexpr Block kMxfp4Few[] = {{16, 0.61}, {32, 0.665}, {48, 0.73}},
                kInt4Few[] = {{16, 0.69}, {32, 0.785}, {48, 0.845}};
constexpr Block kMxfp4Many[] = {{64, 0.525}, {128, 0.66}, {192, 0.81}, {256, 0.96}};
constexpr Block kInt4Many[] = {{64, 0.6}, {96, 0.69}, {128, 0.8}, {256, 1.25}};
std::span<const Block> blocks_of(FourBitConfig c) {
    if (c.codes == FourBitCodes::Mxfp4) return c.many() ? std::span<const Block>(kMxfp4Many) : kMxfp4Few;
    return c.many() ? std::span<const Block>(kInt4Many) : kInt4Few;
}
/// The part of memory's speed that loads of packed weights reach.
constexpr double kLoadSpeed = 0.87;
/// Microseconds that FP8 products take longer than is predicted, where the forms meet: with 48 and 64 rows of a
/// group 2.3 to 7.8 in those records. With more the prediction is no longer too low.
constexpr double kFp8More = 3;

/// A k-block of a tile of so many rows, where so many CTAs load at once.
double block_us(FourBitConfig config, double rows, double ctas, const plan::DeviceSpec& d) {
    const Block& block = *std::ranges::find_if(blocks_of(config), [&](const Block& b) { return rows <= b.rows; });
    const double loaded = ctas * config.blocks() * kFourBitBlockBytes / (kLoadSpeed * d.hbm_bytes_per_us);
    return std::max(block.us / d.clock_ratio, loaded);
}

plan::BusyGroups rows_of(const plan::Problem& p) {
    return p.groups.of_rows() > 0 ? p.busy_groups() : plan::BusyGroups{1, double(p.m)};
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

FourBitCost four_bit_cost(const plan::Problem& fp8, const plan::DeviceSpec& d, FourBitRows form) {
    const auto [groups, rows] = rows_of(fp8);
    const uint32_t sms = plan::has_sm_budget(fp8, d) ? fp8.num_sms : d.sms;
    const FourBitConfig config{codes_of(format_of(fp8)), form};
    const double tile = config.tile_rows(), of_rows = std::ceil(rows / tile), last = rows - (of_rows - 1) * tile;
    const double tiles = groups * of_rows * std::ceil(fp8.n / double(config.cols())),
                 ctas = std::min(tiles, double(sms));
    const auto block = [&](double of_tile) { return block_us(config, of_tile, ctas, d); };
    const double mean = ((of_rows - 1) * block(tile) + block(last)) / of_rows;
    return {form, kLaunch + std::ceil(tiles / ctas) * fp8.k_blocks() * mean, static_cast<uint32_t>(tiles),
            static_cast<uint32_t>(ctas)};
}

FourBitCost four_bit_cost(const plan::Problem& fp8, const plan::DeviceSpec& d) {
    const FourBitCost few = four_bit_cost(fp8, d, FourBitRows::Few), many = four_bit_cost(fp8, d, FourBitRows::Many);
    return rows_of(fp8).rows > FourBitConfig{codes_of(format_of(fp8))}.tile_rows() && many.us < few.us ? many : few;
}

Fp8Cost fp8_cost(const plan::Problem& fp8, const plan::DeviceSpec& device, const plan::PlanTable* user) {
    const GemmConfig config = plan::choose(fp8, device, user).config;
    return {config, plan::cost(fp8, device, config).total + kFp8More};
}

bool is_fp8_faster(const plan::Problem& fp8, const plan::DeviceSpec& device, const plan::PlanTable* user) {
    return fp8_cost(fp8, device, user).us < four_bit_cost(fp8, device).us;
}

}  // namespace finegemm
