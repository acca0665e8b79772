// The cost model: how long a kernel will take. Layer plan.
#include <algorithm>
#include <cmath>
#include <iterator>

#include <finegemm/core/schedule.h>

#include "plan/plan.h"

namespace finegemm::plan {

namespace {

// Microseconds from launch to end of a kernel that does next to nothing, on an H200.
constexpr double kLaunch = 2.2;

// Clusters of a size that fit at once on 132 SMs with one CTA, or two, to an SM: what cuOccupancyMaxActiveClusters says
// on an H200. A cluster lies within a GPC, and parts of GPCs are left over. 0: no candidate is of this kind.
constexpr uint32_t kSmsCounted = 132;
constexpr uint32_t kClusters[][2] = {{}, {132, 264}, {66, 132}, {39, 79}, {30, 62}, {0, 47}, {}, {}, {0, 30}};

// Compute and memory overlap, but not wholly: the norm of this order joins them (2: add squares; infinity: the larger).
constexpr double kOverlap = 4;

/// Groups differ in rows: as many as expected, but for up to three tenths more or less.
constexpr double kSpread[] = {0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3};

double group_rows(const Problem& p) { return p.group_rows > 0 ? p.group_rows : static_cast<double>(p.m) / p.groups; }

/// Cluster tiles of a problem; of groups, as many as expected.
uint64_t cluster_tiles(const Problem& p, const GemmConfig& c) {
    if (p.groups == 0) return raster(c, p.m, p.n).size();
    double below = 0;
    for (const double spread : kSpread) below += std::ceil(std::max(1.0, group_rows(p) * spread) / c.tile_m);
    const double columns = ceil_div(p.n, c.tile_n * cluster_tiles_n(c));
    return static_cast<uint64_t>(std::ceil(below / std::size(kSpread) * p.groups * columns));
}

/// Bytes of A, B and D, each once.
double traffic(const Problem& p) {
    const double m = p.groups > 0 ? group_rows(p) * p.groups : p.m, n = p.n, k = p.k;
    return m * k + max(1, p.groups) * n * k + 2 * m * n;
}

double compute_time(const Problem& p, const DeviceSpec& d, const GemmConfig& c, uint64_t ctas) {
    const Rates& r = rates(c);
    const double blocks = ceil_div(p.k_blocks(), c.k_splits());
    const uint64_t slots = ctas_at_once(p, d, c), full_waves = ctas / slots, rest = ctas % slots;
    const auto wave = [&](uint64_t size) { return r.tile + blocks * (size <= d.sms ? r.block_alone : r.block); };
    return (static_cast<double>(full_waves) * wave(slots) + (rest > 0 ? wave(rest) : 0)) / d.clock_ratio;
}

}  // namespace

uint32_t ctas_at_once(const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
    if (has_sm_budget(p, d)) return p.num_sms / c.cluster * c.cluster;
    return max(1, kClusters[c.cluster][c.ctas_per_sm - 1] * d.sms / kSmsCounted) * c.cluster;
}

Cost cost(const Problem& p, const DeviceSpec& d, const GemmConfig& c) {
    const uint64_t tiles = cluster_tiles(p, c) * cluster_tiles_m(c) * cluster_tiles_n(c);
    const uint64_t ctas = tiles * c.k_splits();
    Cost t{.launch = kLaunch,
           .compute = compute_time(p, d, c, ctas),
           .memory = traffic(p) / d.hbm_bytes_per_us,
           .tiles = static_cast<uint32_t>(tiles),
           .ctas = static_cast<uint32_t>(ctas)};
    t.total = t.launch + std::pow(std::pow(t.compute, kOverlap) + std::pow(t.memory, kOverlap), 1 / kOverlap);
    return t;
}

}  // namespace finegemm::plan
