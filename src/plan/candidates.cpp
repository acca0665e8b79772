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
    GemmConfig config;  // tile_m, tile_n, stages, math_warpgroups, cluster, cluster_use, ctas_per_sm
    Rates rates;        // block, block_alone, tile
};

// Those of 38 measured kernels that are needed to have a best one for every shape (bench/results/sweep_h200.json: the
// dense shapes and 300 random ones; kernels that changed after a shape was measured are left out of its row). Small
// tiles stream weights for few rows, two CTAs to an SM; K is split over a cluster where tiles do not fill the device.
// Rates are fitted to the shapes whose K is a multiple of 128.
constexpr auto kCandidates = std::to_array<Candidate>({
    {{64, 16, 10, 1, 1, kAlone, 2}, {0.166, 0.120, 0.41}},
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.216, 0.139, 0.45}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.250, 0.144, 1.44}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.274, 0.167, 1.40}},
    {{64, 32, 6, 1, 8, kSplitK, 2}, {0.299, 0.195, 1.45}},
    {{64, 48, 7, 1, 1, kAlone, 2}, {0.264, 0.167, 0.52}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.303, 0.237, 0.37}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.292, 0.191, 0.45}},
    {{64, 64, 5, 1, 2, kSplitK, 2}, {0.450, 0.239, 1.69}},
    {{64, 64, 5, 1, 4, kSplitK, 2}, {0.470, 0.223, 1.86}},
    {{128, 32, 10, 2, 1, kAlone, 1}, {0.172, 0.172, 0.48}},
    {{128, 32, 8, 2, 2, kSplitK, 1}, {0.212, 0.212, 1.51}},
    {{128, 32, 8, 2, 3, kSplitK, 1}, {0.183, 0.183, 2.18}},
    {{128, 32, 8, 2, 4, kSplitK, 1}, {0.177, 0.177, 2.14}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.243, 0.243, 0.50}},
    {{128, 64, 7, 2, 3, kSplitK, 1}, {0.264, 0.264, 2.56}},
    {{128, 96, 7, 2, 1, kAlone, 1}, {0.332, 0.332, 0.79}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.372, 0.372, 0.95}},
    {{128, 144, 6, 2, 1, kAlone, 1}, {0.473, 0.473, 1.26}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.470, 0.470, 1.61}},
    {{128, 192, 5, 2, 1, kAlone, 1}, {0.534, 0.534, 1.42}},
    {{192, 64, 6, 3, 1, kAlone, 1}, {0.359, 0.359, 0.66}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.470, 0.470, 1.14}},
    {{192, 128, 4, 3, 1, kAlone, 1}, {0.531, 0.531, 1.45}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.722, 0.722, 1.81}},
    {{256, 128, 4, 2, 2, kShareA, 1}, {0.723, 0.723, 2.08}},
});

constexpr auto kConfigs = [] {
    std::array<GemmConfig, kCandidates.size()> configs{};
    for (size_t i = 0; i < configs.size(); ++i) configs[i] = kCandidates[i].config;
    return configs;
}();

}  // namespace

std::span<const GemmConfig> candidates() { return kConfigs; }

GemmConfig for_row_scales(GemmConfig config) {
    // Where a k-block has the scales of 64 rows to copy, it takes no longer row-major (measured on an H200).
    if (config.tile_m > 64) config.scales = ScaleLayout::Rows;
    return config;
}

std::vector<GemmConfig> kernels() {
    std::vector<GemmConfig> all(kConfigs.begin(), kConfigs.end());
    for (const GemmConfig& c : kConfigs)
        if (for_row_scales(c) != c) all.push_back(for_row_scales(c));
    return all;
}

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
    if (c.scales == ScaleLayout::Rows) name += "_rows";
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
