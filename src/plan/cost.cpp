// The cost model: how long a kernel will take. Layer plan.
#include <cmath>

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
    const double m = p.m, n = p.n, k = p.k;
    const uint64_t tiles_of_cluster = cluster_tiles_m(c) * cluster_tiles_n(c);
    const uint64_t tiles = raster(c, p.m, p.n).size() * tiles_of_cluster;
    const uint64_t ctas = tiles * c.k_splits();
    Cost t{.launch = kLaunch,
           .compute = compute_time(p, d, c, ctas),
           .memory = (m * k + n * k + 2 * m * n) / d.hbm_bytes_per_us,
           .tiles = static_cast<uint32_t>(tiles),
           .ctas = static_cast<uint32_t>(ctas)};
    t.total = t.launch + std::pow(std::pow(t.compute, kOverlap) + std::pow(t.memory, kOverlap), 1 / kOverlap);
    return t;
}

}  // namespace finegemm::plan
