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
    Rates rates;        // block, block_alone, tile, and in groups spared
};

// Nearly each is the best one for some of 756 shapes: the dense table, random shapes and layers of real models
// (bench/results/sweep_h200.json). Small tiles stream weights for few rows, two CTAs to an SM; K is split over a
// cluster where tiles do not fill the device. 128x32 alone and 64x16 of one warpgroup are best for none, but batch
// invariance asks for them. Rates are fitted to the shapes whose K is a multiple of 128.
constexpr auto kCandidates = std::to_array<Candidate>({
    {{64, 16, 10, 1, 1, kAlone, 2}, {0.271, 0.136, 0.23}},
    {{64, 16, 10, 2, 1, kAlone, 2}, {0.275, 0.123, 0.23}},
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.237, 0.151, 0.53}},
    {{64, 32, 16, 2, 1, kAlone, 1}, {0.106, 0.106, 0.70}},
    {{64, 32, 10, 2, 2, kSplitK, 1}, {0.171, 0.171, 0.91}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.298, 0.160, 0.82}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.253, 0.152, 0.93}},
    {{64, 32, 6, 1, 8, kSplitK, 2}, {0.319, 0.196, 0.69}},
    {{64, 48, 7, 1, 1, kAlone, 2}, {0.241, 0.177, 1.85}},
    {{64, 48, 12, 2, 1, kAlone, 1}, {0.121, 0.121, 2.69}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.332, 0.322, 0.55}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.265, 0.237, 0.79}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.116, 0.116, 2.55}},
    {{64, 64, 10, 2, 2, kSplitK, 1}, {0.173, 0.173, 3.23}},
    {{64, 64, 12, 2, 2, kShareA, 1}, {0.290, 0.290, 1.73}},
    {{64, 80, 10, 2, 1, kAlone, 1}, {0.170, 0.170, 2.26}},
    {{64, 80, 12, 2, 1, kAlone, 1}, {0.151, 0.151, 2.75}},
    {{64, 96, 10, 2, 1, kAlone, 1}, {0.164, 0.164, 2.97}},
    {{64, 128, 8, 2, 1, kAlone, 1}, {0.213, 0.213, 2.22}},
    {{64, 144, 8, 2, 1, kAlone, 1}, {0.223, 0.223, 3.48}},
    {{128, 32, 10, 2, 1, kAlone, 1}, {0.222, 0.222, 0.49}},
    {{128, 32, 8, 2, 3, kSplitK, 1}, {0.134, 0.134, 2.55}},
    {{128, 32, 8, 2, 4, kSplitK, 1}, {0.142, 0.142, 1.98}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.228, 0.228, 1.16}},
    {{128, 64, 7, 2, 3, kSplitK, 1}, {0.235, 0.235, 3.51}},
    {{128, 80, 7, 2, 1, kAlone, 1}, {0.259, 0.259, 1.65}},
    {{128, 96, 7, 2, 1, kAlone, 1}, {0.311, 0.311, 0.67}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.376, 0.376, 0.62}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.364, 0.364, 0.81}},
    {{128, 144, 6, 2, 1, kAlone, 1}, {0.409, 0.409, 0.99}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.446, 0.446, 0.86}},
    {{128, 176, 4, 2, 1, kAlone, 1}, {0.484, 0.484, 1.20}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.511, 0.511, 1.24}},
    {{128, 192, 5, 2, 1, kAlone, 1}, {0.533, 0.533, 1.12}},
    {{128, 192, 4, 2, 2, kShareB, 1}, {0.547, 0.547, 1.25}},
    {{192, 64, 6, 3, 1, kAlone, 1}, {0.319, 0.319, 1.40}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.433, 0.433, 0.71}},
    {{192, 96, 5, 3, 2, kShareA, 1}, {0.459, 0.459, 0.86}},
    {{192, 128, 4, 3, 1, kAlone, 1}, {0.537, 0.537, 1.06}},
    {{256, 112, 4, 2, 1, kAlone, 1}, {0.682, 0.682, 1.49}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.723, 0.723, 1.47}},
    {{256, 128, 4, 2, 2, kShareA, 1}, {0.751, 0.751, 1.60}},
});

// For groups of rows, of 14 measured kernels: over 196 shapes (bench/results/sweep_grouped_h200.json) the best of these
// twelve takes 1.0001 of the best of all.
constexpr auto kGrouped = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.186, 0.180, 0.66, 0.50}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.336, 0.235, 0.48, 0.50}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.314, 0.314, 0.53, 0.50}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.289, 0.289, 0.49, 0.60}},
    {{128, 96, 7, 2, 1, kAlone, 1}, {0.352, 0.352, 0.49, 0.62}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.438, 0.438, 0.60, 0.37}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.516, 0.516, 0.94, 0.41}},
    {{128, 176, 5, 2, 1, kAlone, 1}, {0.534, 0.534, 0.90, 0.40}},
    {{128, 192, 5, 2, 1, kAlone, 1}, {0.552, 0.552, 0.85, 0.31}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.518, 0.518, 0.61, 0.68}},
    {{192, 128, 4, 3, 1, kAlone, 1}, {0.627, 0.627, 0.71, 0.51}},
    {{256, 128, 4, 2, 2, kShareA, 1}, {0.776, 0.776, 1.09, 0.72}},
});

// With scales for each row of B, which training takes. 128x128 tiles, whose scales the tensor cores multiply, are best
// for most of 42 shapes (bench/results/sweep_1d1d_h200.json), wherever they do not end in a nearly empty wave.
constexpr auto kRowCandidates = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.293, 0.218, 1.83}},
    {{128, 64, 7, 2, 1, kAlone, 1}, {0.283, 0.283, 1.78}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.478, 0.478, 1.12}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.741, 0.741, 1.77}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.580, 0.580, 1.85}},
});

/// The configurations of a list of candidates, whose rows leave their kind to this.
template <size_t Count>
constexpr std::array<GemmConfig, Count> configs_of(const std::array<Candidate, Count>& list, Kind kind) {
    std::array<GemmConfig, Count> configs{};
    for (size_t i = 0; i < Count; ++i) {
        configs[i] = list[i].config;
        configs[i].grouping = kind.grouping;
        configs[i].b_scales = kind.b_scales;
        configs[i].output = kind.output;
    }
    return configs;
}

constexpr Kind kPlainKind{}, kGroupedKind{.grouping = Grouping::Rows}, kRowKind{.b_scales = ScaleBlocks::Rows},
    kRowF32Kind{.b_scales = ScaleBlocks::Rows, .output = Output::F32},
    kKGroupedKind{.grouping = Grouping::K, .b_scales = ScaleBlocks::Rows, .output = Output::F32};
constexpr auto kConfigs = configs_of(kCandidates, kPlainKind);
constexpr auto kGroupedConfigs = configs_of(kGrouped, kGroupedKind);
constexpr auto kRowConfigs = configs_of(kRowCandidates, kRowKind);
constexpr auto kRowF32Configs = configs_of(kRowCandidates, kRowF32Kind);
constexpr auto kKGroupedConfigs = configs_of(kRowCandidates, kKGroupedKind);

/// All candidates of a kind.
struct List {
    Kind kind;
    std::span<const GemmConfig> configs;
    std::span<const Candidate> candidates;   // the same, with their rates
};
constexpr List kLists[] = {{kPlainKind, kConfigs, kCandidates},
                           {kGroupedKind, kGroupedConfigs, kGrouped},
                           {kRowKind, kRowConfigs, kRowCandidates},
                           {kRowF32Kind, kRowF32Configs, kRowCandidates},
                           {kKGroupedKind, kKGroupedConfigs, kRowCandidates}};

const List* list_of(Kind kind) {
    for (const List& list : kLists)
        if (list.kind == kind) return &list;
    return nullptr;
}

}  // namespace

std::span<const GemmConfig> candidates(Kind kind) {
    const List* list = list_of(kind);
    return list ? list->configs : std::span<const GemmConfig>();
}

GemmConfig for_row_scales(GemmConfig config) {
    // Where a k-block has the scales of 64 rows to copy, it takes no longer row-major (measured on an H200). Where each
    // row of B has a scale, runs of both take longer than copies, but no longer where they go through registers anyway.
    if (config.tile_m > 64 && (!config.row_b_scales() || factors_by_wgmma(config))) config.scales = ScaleLayout::Rows;
    return config;
}

std::vector<GemmConfig> kernels() {
    std::vector<GemmConfig> all;
    for (const List& list : kLists) {
        all.insert(all.end(), list.configs.begin(), list.configs.end());
        for (const GemmConfig& c : list.configs)
            if (for_row_scales(c) != c) all.push_back(for_row_scales(c));
    }
    return all;
}

const Rates& rates(const GemmConfig& config) {
    if (const List* list = list_of(kind_of(config)))
        if (const auto found = std::ranges::find(list->configs, config); found != list->configs.end())
            return list->candidates[static_cast<size_t>(found - list->configs.begin())].rates;
    throw Error(Errc::Internal, "no rates for a kernel that is not a candidate");
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
    if (c.row_groups()) name += "_grouped";
    if (c.b_scales == ScaleBlocks::Rows) name += "_1d1d";
    if (c.output == Output::F32) name += "_f32";
    if (c.k_groups()) name += "_kgrouped";
    if (c.scales == ScaleLayout::Rows) name += "_rows";
    return name;
}

GemmConfig config_named(std::string_view name) {
    for (const List& list : kLists)
        for (const GemmConfig& c : list.configs)
            if (name_of(c) == name) return c;
    throw Error(
        Errc::InvalidArgument,
        fmt::format("config: '{}' is not the name of a kernel; `finegemm explain M N K` lists the names", name));
}

}  // namespace finegemm::plan
