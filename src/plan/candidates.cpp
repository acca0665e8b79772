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

// Those of 38 measured kernels that are needed to have a best one for every shape (bench/results/sweep_h200.json: the
// dense shapes and 300 random ones; kernels that changed after a shape was measured are left out of its row). Small
// tiles stream weights for few rows, two CTAs to an SM; K is split over a cluster where tiles do not fill the device.
// Rates are fitted to the shapes whose K is a multiple of 128.
constexpr auto kCandidates = std::to_array<Candidate>({
    {{64, 16, 10, 1, 1, kAlone, 2, 16}, {0.163, 0.113, 0.48}},
    {{64, 32, 8, 1, 1, kAlone, 2, 32}, {0.215, 0.136, 0.52}},
    {{64, 32, 7, 1, 2, kSplitK, 2, 32}, {0.268, 0.144, 1.49}},
    {{64, 32, 7, 1, 3, kSplitK, 2, 32}, {0.251, 0.144, 1.48}},
    {{64, 32, 7, 1, 5, kSplitK, 2, 32}, {0.265, 0.166, 1.49}},
    {{64, 32, 6, 1, 8, kSplitK, 2, 32}, {0.294, 0.195, 1.39}},
    {{64, 48, 6, 1, 1, kAlone, 2, 48}, {0.279, 0.187, 0.56}},
    {{64, 64, 5, 1, 1, kAlone, 2, 64}, {0.310, 0.237, 0.39}},
    {{64, 64, 5, 1, 2, kSplitK, 2, 64}, {0.456, 0.233, 1.75}},
    {{64, 64, 5, 1, 4, kSplitK, 2, 64}, {0.471, 0.219, 1.90}},
    {{128, 32, 8, 2, 1, kAlone, 1, 32}, {0.179, 0.179, 0.45}},
    {{128, 32, 8, 2, 2, kSplitK, 1, 32}, {0.176, 0.176, 1.66}},
    {{128, 32, 8, 2, 3, kSplitK, 1, 32}, {0.183, 0.183, 1.99}},
    {{128, 32, 8, 2, 4, kSplitK, 1, 32}, {0.174, 0.174, 2.09}},
    {{128, 64, 7, 2, 1, kAlone, 1, 64}, {0.260, 0.260, 0.50}},
    {{128, 64, 7, 2, 2, kSplitK, 1, 64}, {0.265, 0.265, 2.16}},
    {{128, 64, 7, 2, 3, kSplitK, 1, 64}, {0.263, 0.263, 2.64}},
    {{128, 96, 5, 2, 2, kSplitK, 1, 96}, {0.375, 0.375, 3.60}},
    {{128, 128, 6, 2, 1, kAlone, 1, 64}, {0.361, 0.361, 1.17}},
    {{128, 128, 6, 2, 2, kShareB, 1, 64}, {0.380, 0.380, 1.30}},
    {{192, 64, 6, 3, 1, kAlone, 1, 64}, {0.364, 0.364, 0.65}},
    {{192, 96, 5, 3, 1, kAlone, 1, 48}, {0.500, 0.500, 1.20}},
    {{192, 128, 4, 3, 1, kAlone, 1, 64}, {0.540, 0.540, 1.35}},
    {{192, 128, 4, 3, 2, kShareA, 1, 64}, {0.550, 0.550, 1.63}},
    {{256, 64, 5, 2, 1, kAlone, 1, 64}, {0.470, 0.470, 1.00}},
    {{256, 128, 4, 2, 2, kShareA, 1, 64}, {0.741, 0.741, 2.38}},
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
