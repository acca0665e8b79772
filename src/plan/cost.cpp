// The cost model: how long a kernel will take. Layer plan.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include <finegemm/gemm/schedule.h>

#include "plan/plan.h"

namespace finegemm::plan {

namespace {

// Microseconds from launch to end of a kernel that does next to nothing, on an H200.
constexpr double kLaunch = 2.2;

// Clusters of a size that fit at once on 132 SMs with one CTA, or two, to an SM: what cuOccupancyMaxActiveClusters says
// on an H200. A cluster lies within a GPC, and parts of GPCs are left over. {}: no candidate has it.
constexpr uint32_t kSmsCounted = 132;
constexpr uint32_t kClusters[][2] = {{}, {132, 264}, {66, 132}, {39, 79}, {30, 62}, {22, 47}, {}, {}, {15, 30}};

// Compute and memory overlap, but not wholly: the norm of this order joins them (2: add squares; infinity: the larger).
constexpr double kOverlap = 4;

// Bytes that all SMs together get from L2 in a microsecond where rows do not begin on its lines, so that 128 bytes of a
// row may lie in two lines: if not even on sectors of 32 bytes, and if on these. As fitted, for all kernels alike, to
// the 15 shapes of each kind in bench/results/sweep_h200.json.
constexpr double kL2BetweenSectors = 6.6e6, kL2BetweenLines = 10.3e6;

uint32_t ctas_that_fit(const DeviceSpec& d, const GemmConfig& c, uint32_t per_sm) {
    return max(1, kClusters[c.cluster][per_sm - 1] * d.sms / kSmsCounted) * c.cluster;
}

/// Groups differ in rows: as many as expected, but for up to three tenths more or less.
constexpr double kSpread[] = {0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3};

/// Part of the weights of groups with two tiles or more, one below the other, that is read from memory twice.
constexpr double kReread = 0.3;

/// Centres, in standard deviations, of four equally likely parts of a normal distribution: the number of tiles.
constexpr double kQuarters[] = {-1.2, -0.4, 0.4, 1.2};

/// Pieces that K is cut into, each with sums of its own; 1 where it is not.
uint32_t pieces_of(const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
    if (!c.summed()) return 1;
    return k_pieces(p.k_blocks(), p.batch_invariant ? 0 : raster(c, p.m, p.n).size(), ctas_at_once(p, d, c));
}

/// K-blocks of a tile: groups of K share them evenly, as far as is known beforehand.
uint32_t k_blocks_of_tile(const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
    return ceil_div(p.k_blocks(), max(1, p.groups.of_k()) * pieces_of(p, d, c));
}

/// Up to so many groups of unknown sizes every number of tiles is weighed that they can make together. More groups make
/// so many numbers likely that the normal distribution has them.
constexpr uint32_t kFewGroups = 8;

/// A number of tiles, and how likely it is.
struct Likely {
    double tiles, part;
};

/// Tiles of CTAs, as far as their number is known beforehand.
struct Tiles {
    std::vector<Likely> numbers;
    double mean = 0;
    double share = 1;  // of its time that a tile takes: the last one of a group may leave warpgroups without rows
    double below = 1;  // tiles of a group, one below the other
};

/// What `groups` groups make together if each makes one of the numbers `of_one`, all as likely.
template <size_t Count>
std::vector<Likely> sums_of(const uint32_t (&of_one)[Count], uint32_t groups, double across) {
    const uint32_t most = *std::ranges::max_element(of_one);
    std::vector<double> parts = {1};  // of each sum
    for (uint32_t g = 0; g < groups; ++g) {
        std::vector<double> next(parts.size() + most);
        for (size_t sum = 0; sum < parts.size(); ++sum)
            for (const uint32_t number : of_one) next[sum + number] += parts[sum] / Count;
        parts = std::move(next);
    }
    std::vector<Likely> sums;
    for (size_t sum = 0; sum < parts.size(); ++sum)
        if (parts[sum] > 0) sums.push_back({static_cast<double>(sum) * across, parts[sum]});
    return sums;
}

/// A normal distribution, but never less than `least`.
std::vector<Likely> normal(double mean, double deviation, double least) {
    if (deviation == 0) return {{mean, 1}};
    std::vector<Likely> quarters;
    for (const double quantile : kQuarters)
        quarters.push_back({std::max(least, mean + quantile * deviation), 1.0 / std::size(kQuarters)});
    return quarters;
}

Tiles tiles_of(const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
    const double across = ceil_div(p.n, c.tile_n * cluster_tiles_n(c)) * cluster_tiles_n(c);
    if (p.groups.kind != Grouping::Rows) {
        const double number = static_cast<double>(raster(c, p.m, p.n).size()) * cluster_tiles_m(c) *
                              cluster_tiles_n(c) * max(1, p.groups.of_k()) * pieces_of(p, d, c);
        return {.numbers = {{number, 1}}, .mean = number};
    }
    // All together have M rows if no number is expected of each: then a group has the more, the less others have.
    const BusyGroups expected = p.busy_groups();
    const bool total_known = p.groups.expected_m == 0;
    const double apart = total_known ? std::sqrt(1 - 1 / expected.groups) : p.has_equal_groups() ? 0 : 1;
    double below = 0, whole = 0;            // tiles of a group, one below the other
    double strays = 0, squared_strays = 0;  // of their number, for its variance
    uint32_t counts[std::size(kSpread)], i = 0;
    for (const double spread : kSpread) {
        const double rows = std::max(1.0, expected.rows * (1 + (spread - 1) * apart));
        const double full = std::floor(rows / c.tile_m), rest = rows - full * c.tile_m;
        const double used = std::ceil(rest / c.row_step()) * c.row_step() / c.tile_m;
        const double count = full + (rest > 0 ? 1 : 0);
        counts[i++] = static_cast<uint32_t>(count);
        const double stray = count - (total_known ? rows / c.tile_m : 0);
        below += count / std::size(kSpread);
        strays += stray / std::size(kSpread);
        squared_strays += stray * stray / std::size(kSpread);
        whole += (full + (rest > 0 ? 1 - rates(c).spared * (1 - used) : 0)) / std::size(kSpread);
    }
    const double deviation = std::sqrt(expected.groups * std::max(0.0, squared_strays - strays * strays));
    const double mean = expected.groups * below * across;
    const bool few = !total_known && p.groups.count <= kFewGroups;
    return {.numbers = few ? sums_of(counts, p.groups.count, across) : normal(mean, deviation * across, across),
            .mean = mean,
            .share = whole / below,
            .below = below};
}

/// Microseconds that memory takes for A, B and D, each once; but weights that a second tile of a group reads may have
/// left L2 by then. A D that is added to is read and written, or L2 adds to it. Sums of pieces are written, and read
/// from L2.
double memory_time(const Problem& p, const DeviceSpec& d, const GemmConfig& c, const Tiles& tiles) {
    const bool of_rows = p.groups.of_rows() > 0;
    const BusyGroups of = of_rows ? p.busy_groups() : BusyGroups{1, static_cast<double>(p.m)};
    const double m = of.groups * of.rows, n = p.n, k = p.k;
    const double reread = of_rows ? kReread * std::min(tiles.below - 1, 1.0) : 0;
    const double loaded = (m * k + of.groups * n * k * (1 + reread)) * bytes_of(p.a.element),
                 elements = m * n * max(1, p.groups.of_k());
    if (c.summed()) {
        const double of_d = p.d.element == DType::F32 ? p.d.accumulate ? 8 : 4 : 2;
        return (loaded + elements * (4 * pieces_of(p, d, c) + of_d)) / d.hbm_bytes_per_us;
    }
    if (p.d.accumulate && !kernel_plan(c).loads_source())
        return loaded / d.hbm_bytes_per_us + elements * 4 / d.l2_adds_per_us;
    return (loaded + elements * (p.d.accumulate ? 8 : c.output == Output::F32 ? 4 : 2)) / d.hbm_bytes_per_us;
}

/// Microseconds that L2 takes for a k-block of one CTA; the CTAs of a wave share it. Rows are taken to lie K bytes
/// apart. 0 where they begin on lines or on halves of lines: there the rates have all that was seen to count.
double l2_time(const Problem& p, const GemmConfig& c) {
    const uint32_t row_bytes = p.k * bytes_of(p.a.element);
    if (row_bytes % 64 == 0) return 0;
    const uint32_t rows = c.tile_m / c.a_sharers() + c.tile_n / c.b_sharers();
    return rows * kRowBytes / (row_bytes % 32 == 0 ? kL2BetweenLines : kL2BetweenSectors);
}

double compute_time(const Problem& p, const DeviceSpec& d, const GemmConfig& c, const Tiles& tiles) {
    const Rates& r = rates(c);
    const double blocks = ceil_div(k_blocks_of_tile(p, d, c), c.k_splits()) * tiles.share,
                 slots = ctas_at_once(p, d, c);
    const double alone = has_sm_budget(p, d) ? slots : ctas_that_fit(d, c, 1), l2 = l2_time(p, c);
    const double tile = r.tile + (p.d.accumulate ? r.source : 0);
    const auto waves = [&](double ctas) {
        const double full = std::floor(ctas / slots), rest = ctas - full * slots;
        const auto wave = [&](double size) {
            return tile + blocks * std::max(size <= alone ? r.block_alone : r.block, size * l2);
        };
        return full * wave(slots) + (rest >= 1 ? wave(rest) : 0);
    };
    double sum = 0;
    for (const Likely& number : tiles.numbers) sum += number.part * waves(number.tiles * c.k_splits());
    return sum / d.clock_ratio;
}

}  // namespace

uint32_t ctas_at_once(const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
    if (has_sm_budget(p, d)) return p.num_sms / c.cluster * c.cluster;
    return ctas_that_fit(d, c, c.ctas_per_sm);
}

Cost cost(const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
    const Tiles tiles = tiles_of(p, d, c);
    Cost t{.launch = c.summed() ? 2 * kLaunch : kLaunch,
           .compute = compute_time(p, d, c, tiles),
           .memory = memory_time(p, d, c, tiles),
           .tiles = static_cast<uint32_t>(std::lround(tiles.mean)),
           .ctas = static_cast<uint32_t>(std::lround(tiles.mean * c.k_splits()))};
    t.total = t.launch + std::pow(std::pow(t.compute, kOverlap) + std::pow(t.memory, kOverlap), 1 / kOverlap);
    return t;
}

}  // namespace finegemm::plan
