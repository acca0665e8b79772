// The kernels that the planner chooses from, their names and their rates. Layer plan.
#include <algorithm>
#include <array>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "plan/plan.h"

namespace finegemm::plan {

namespace {

constexpr auto kAlone = ClusterUse::None, kShareA = ClusterUse::ShareA, kShareB = ClusterUse::ShareB,
               kSplitK = ClusterUse::SplitK;

struct Candidate {
    GemmConfig config;  // tile_m, tile_n, stages, math_warpgroups, cluster, cluster_use, ctas_per_sm, slab_n
    Rates rates;        // block, block_alone, tile
};

// Those of 57 measured kernels (bench/results/sweep_h200.json) with which the cost model chooses best: 0.8% above the
// best of all 57 in geometric mean over the dense shapes. Small tiles stream weights for few rows, two CTAs to an SM; K
// is split over a cluster where tiles do not fill the device.
constexpr auto kCandidates = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2, 32}, {0.228, 0.176, 0.70}},
    {{64, 32, 7, 1, 2, kSplitK, 2, 32}, {0.223, 0.117, 2.91}},
    {{64, 32, 7, 1, 3, kSplitK, 2, 32}, {0.203, 0.076, 3.64}},
    {{64, 32, 7, 1, 4, kSplitK, 2, 32}, {0.298, 0.048, 3.56}},
    {{64, 32, 7, 1, 5, kSplitK, 2, 32}, {0.252, 0.089, 3.01}},
    {{64, 32, 6, 1, 8, kSplitK, 2, 32}, {0.236, 0.080, 2.67}},
    {{64, 64, 5, 1, 1, kAlone, 2, 64}, {0.292, 0.252, 0.68}},
    {{64, 64, 5, 1, 2, kSplitK, 2, 64}, {0.359, 0.192, 4.13}},
    {{64, 64, 5, 1, 3, kSplitK, 2, 64}, {0.434, 0.218, 2.75}},
    {{64, 64, 5, 1, 5, kSplitK, 2, 64}, {0.436, 0.156, 3.48}},
    {{128, 32, 8, 2, 1, kAlone, 1, 32}, {0.178, 0.178, 0.51}},
    {{128, 32, 8, 2, 2, kSplitK, 1, 32}, {0.172, 0.172, 3.12}},
    {{128, 48, 8, 2, 1, kAlone, 1, 48}, {0.214, 0.214, 0.66}},
    {{128, 64, 7, 2, 2, kShareB, 1, 64}, {0.267, 0.267, 0.46}},
    {{128, 64, 7, 2, 1, kAlone, 1, 64}, {0.261, 0.261, 0.49}},
    {{128, 64, 5, 2, 2, kSplitK, 1, 64}, {0.326, 0.326, 3.06}},
    {{128, 128, 6, 2, 1, kAlone, 1, 64}, {0.376, 0.376, 1.01}},
    {{128, 128, 6, 2, 2, kShareB, 1, 64}, {0.394, 0.394, 1.04}},
    {{192, 96, 5, 3, 1, kAlone, 1, 48}, {0.535, 0.535, 0.84}},
    {{192, 128, 4, 3, 1, kAlone, 1, 64}, {0.560, 0.560, 1.07}},
    {{192, 128, 4, 3, 2, kShareA, 1, 64}, {0.573, 0.573, 1.24}},
});

constexpr auto kConfigs = [] {
    std::array<GemmConfig, kCandidates.size()> configs{};
    for (size_t i = 0; i < configs.size(); ++i) configs[i] = kCandidates[i].config;
    return configs;
}();

}  // namespace

std::span<const GemmConfig> candidates() { return kConfigs; }

const Rates& rates(const GemmConfig& config) {
    const auto found = std::ranges::find(kCandidates, config, &Candidate::config);
    if (found == kCandidates.end()) throw Error(Errc::Internal, "no rates for a kernel that is not a candidate");
    return found->rates;
}

std::string_view name_of(ClusterUse use) {
    switch (use) {
        case ClusterUse::None: return "none";
        case ClusterUse::ShareA: return "shareA";
        case ClusterUse::ShareB: return "shareB";
        case ClusterUse::SplitK: return "splitK";
    }
    return "unknown";
}

std::string name_of(const GemmConfig& c) {
    std::string name = fmt::format("m{}n{}s{}w{}", c.tile_m, c.tile_n, c.stages, c.math_warpgroups);
    if (c.cluster_use != ClusterUse::None) name += fmt::format("_{}{}", name_of(c.cluster_use), c.cluster);
    if (c.ctas_per_sm > 1) name += fmt::format("_x{}", c.ctas_per_sm);
    return name;
}

GemmConfig config_named(std::string_view name) {
    for (const GemmConfig& c : kConfigs)
        if (name_of(c) == name) return c;
    throw Error(
        Errc::InvalidArgument,
        fmt::format("config: '{}' is not the name of a kernel; `finegemm explain M N K` lists the names", name));
}

}  // namespace finegemm::plan
