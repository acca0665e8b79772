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
    GemmConfig config;   // tile_m, tile_n, stages, math_warpgroups, cluster, cluster_use, ctas_per_sm, slab_n
    Rates rates;         // block, block_alone, tile
};

// The few that are needed: adding any other of 58 measured ones gains less than 0.1% in geometric mean over the dense
// shapes. Small tiles stream weights for few rows, two CTAs to an SM; K is split over a cluster where tiles do not fill
// the device.
constexpr auto kCandidates = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2, 32}, {0.242, 0.206, 0.61}},
    {{64, 32, 7, 1, 2, kSplitK, 2, 32}, {0.258, 0.164, 2.47}},
    {{64, 32, 7, 1, 3, kSplitK, 2, 32}, {0.242, 0.131, 2.96}},
    {{64, 32, 7, 1, 4, kSplitK, 2, 32}, {0.340, 0.077, 3.10}},
    {{64, 32, 7, 1, 5, kSplitK, 2, 32}, {0.251, 0.130, 2.68}},
    {{64, 32, 6, 1, 8, kSplitK, 2, 32}, {0.271, 0.200, 2.28}},
    {{64, 64, 5, 1, 1, kAlone, 2, 64}, {0.295, 0.242, 0.60}},
    {{64, 64, 5, 1, 2, kSplitK, 2, 64}, {0.355, 0.193, 3.89}},
    {{64, 64, 5, 1, 3, kSplitK, 2, 64}, {0.442, 0.229, 2.42}},
    {{64, 64, 5, 1, 4, kSplitK, 2, 64}, {0.505, 0.209, 2.98}},
    {{64, 64, 5, 1, 5, kSplitK, 2, 64}, {0.466, 0.217, 2.80}},
    {{64, 96, 6, 1, 1, kAlone, 1, 96}, {0.241, 0.241, 0.76}},
    {{64, 128, 6, 1, 1, kAlone, 1, 64}, {0.251, 0.251, 0.98}},
    {{128, 32, 8, 2, 2, kSplitK, 1, 32}, {0.200, 0.200, 3.37}},
    {{128, 64, 7, 2, 1, kAlone, 1, 64}, {0.269, 0.269, 0.45}},
    {{128, 64, 5, 2, 2, kSplitK, 1, 64}, {0.321, 0.321, 3.14}},
    {{128, 64, 5, 2, 3, kSplitK, 1, 64}, {0.335, 0.335, 3.45}},
    {{128, 96, 6, 2, 1, kAlone, 1, 96}, {0.357, 0.357, 0.68}},
    {{128, 128, 6, 2, 1, kAlone, 1, 64}, {0.374, 0.374, 0.98}},
    {{128, 128, 6, 2, 2, kShareB, 1, 64}, {0.378, 0.378, 1.06}},
    {{128, 192, 4, 2, 1, kAlone, 1, 64}, {0.667, 0.667, 1.40}},
    {{192, 96, 5, 3, 1, kAlone, 1, 48}, {0.520, 0.520, 0.86}},
    {{192, 128, 4, 3, 1, kAlone, 1, 64}, {0.559, 0.559, 1.09}},
    {{192, 128, 4, 3, 2, kShareA, 1, 64}, {0.565, 0.565, 1.14}},
    {{256, 128, 4, 2, 1, kAlone, 1, 64}, {0.754, 0.754, 1.81}},
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
    throw Error(Errc::InvalidArgument,
                fmt::format("config: '{}' is not the name of a kernel; `finegemm explain M N K` lists the names",
                            name));
}

}  // namespace finegemm::plan
