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

// Those of 34 measured kernels (bench/results/sweep_h200.json: the dense shapes and 300 random ones) that are needed to
// have a best one for every shape. Small tiles stream weights for few rows, two CTAs to an SM; K is split over a
// cluster where tiles do not fill the device. Rates are fitted to the shapes whose K is a multiple of 128.
constexpr auto kCandidates = std::to_array<Candidate>({
    {{64, 16, 10, 1, 1, kAlone, 2, 16}, {0.162, 0.113, 0.47}},
    {{64, 32, 8, 1, 1, kAlone, 2, 32}, {0.216, 0.137, 0.48}},
    {{64, 32, 7, 1, 2, kSplitK, 2, 32}, {0.271, 0.141, 1.43}},
    {{64, 32, 7, 1, 3, kSplitK, 2, 32}, {0.253, 0.142, 1.40}},
    {{64, 32, 7, 1, 5, kSplitK, 2, 32}, {0.272, 0.166, 1.30}},
    {{64, 32, 6, 1, 8, kSplitK, 2, 32}, {0.299, 0.190, 1.20}},
    {{64, 48, 6, 1, 1, kAlone, 2, 48}, {0.282, 0.184, 0.54}},
    {{64, 64, 5, 1, 1, kAlone, 2, 64}, {0.311, 0.236, 0.37}},
    {{64, 64, 5, 1, 2, kSplitK, 2, 64}, {0.459, 0.239, 1.68}},
    {{64, 64, 5, 1, 4, kSplitK, 2, 64}, {0.478, 0.219, 1.75}},
    {{128, 32, 8, 2, 1, kAlone, 1, 32}, {0.177, 0.177, 0.44}},
    {{128, 32, 8, 2, 2, kSplitK, 1, 32}, {0.190, 0.190, 2.06}},
    {{128, 32, 8, 2, 3, kSplitK, 1, 32}, {0.196, 0.196, 2.15}},
    {{128, 32, 8, 2, 4, kSplitK, 1, 32}, {0.173, 0.173, 2.15}},
    {{128, 64, 7, 2, 1, kAlone, 1, 64}, {0.261, 0.261, 0.49}},
    {{128, 64, 7, 2, 3, kSplitK, 1, 64}, {0.269, 0.269, 3.18}},
    {{128, 96, 5, 2, 2, kSplitK, 1, 96}, {0.396, 0.396, 4.76}},
    {{128, 128, 6, 2, 1, kAlone, 1, 64}, {0.361, 0.361, 1.16}},
    {{128, 128, 6, 2, 2, kShareB, 1, 64}, {0.378, 0.378, 1.32}},
    {{192, 64, 6, 3, 1, kAlone, 1, 64}, {0.365, 0.365, 0.64}},
    {{192, 96, 5, 3, 1, kAlone, 1, 48}, {0.500, 0.500, 1.18}},
    {{192, 128, 4, 3, 1, kAlone, 1, 64}, {0.540, 0.540, 1.34}},
    {{192, 128, 4, 3, 2, kShareA, 1, 64}, {0.549, 0.549, 1.64}},
    {{256, 64, 5, 2, 1, kAlone, 1, 64}, {0.471, 0.471, 1.00}},
    {{256, 128, 4, 2, 2, kShareA, 1, 64}, {0.741, 0.741, 2.39}},
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
