// Lists of kernels with their rates, one for each kind of products. Layer plan.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace finegemm::plan {

struct Candidate {
    GemmConfig config;  // tile_m, tile_n, stages, math_warpgroups, cluster, cluster_use, ctas_per_sm
    Rates rates;        // block, block_alone, tile; spared in groups; source where the old D is loaded
};

inline constexpr auto kAlone = ClusterUse::None, kShareA = ClusterUse::ShareA, kShareB = ClusterUse::ShareB,
                      kSplitK = ClusterUse::SplitK;

/// The configurations of a list of candidates, whose rows leave their kind to this.
template <size_t Count>
constexpr std::array<GemmConfig, Count> configs_of(const std::array<Candidate, Count>& list, Kind kind) {
    std::array<GemmConfig, Count> configs{};
    for (size_t i = 0; i < Count; ++i) {
        configs[i] = list[i].config;
        kind_fields([](const char*, const auto& from, auto& to) { to = from; }, kind, configs[i]);
        configs[i].swaps_mx = configs[i].has_few_mx_rows();
        configs[i].decodes = configs[i].has_many_mx_rows();
    }
    return configs;
}

/// All candidates of a kind.
struct CandidateList {
    Kind kind;
    std::span<const GemmConfig> configs;
    std::span<const Candidate> candidates;  // the same, with their rates
};

/// The list of one kind of products, whose configurations lie here.
template <const auto& List, Kind kKind>
constexpr auto kConfigsOf = configs_of(List, kKind);
template <const auto& List, Kind kKind>
constexpr CandidateList kListOf{kKind, kConfigsOf<List, kKind>, List};

/// The lists of all types of A and B that have no scales.
std::vector<CandidateList> unscaled_candidates();

/// The lists of these types whose D is more than the product, or has gaps.
std::vector<CandidateList> finished_candidates();

/// The lists of those types of scaled operands and of D that few calls ask for.
std::vector<CandidateList> rare_candidates();

/// The lists of integers.
std::vector<CandidateList> integer_candidates();

/// The lists of FP8 with MX scales of B.
std::vector<CandidateList> mx_candidates();

}  // namespace finegemm::plan
