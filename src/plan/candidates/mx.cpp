// Kernels for FP8 with MX scales of B, and of A or not. Layer plan.
// A promotion takes two instructions for each element and 32 of K, eight times as many as that of FP8's scales: so
// tiles are those that wait for memory beside it, and of 64 columns at most, as four products have registers of their
// own. Rates are predicted: what 64x64 elements of a k-block take to promote, 280 clocks, where that is more than what
// the same tile takes in FP8 (plan/candidates.cpp).
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{64, 16, 8, 1, 1, kAlone, 2}, {0.165, 0.150, 0.58}},
    {{64, 16, 8, 2, 1, kAlone, 2}, {0.180, 0.135, 0.57}},
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.200, 0.170, 0.52}},
    {{64, 32, 16, 2, 1, kAlone, 1}, {0.110, 0.110, 0.83}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.304, 0.170, 1.35}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.240, 0.160, 1.70}},
    {{64, 32, 6, 1, 8, kSplitK, 2}, {0.257, 0.170, 1.65}},
    {{64, 48, 12, 2, 1, kAlone, 1}, {0.140, 0.140, 1.48}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.340, 0.290, 0.39}},
    {{64, 64, 10, 2, 1, kAlone, 1}, {0.180, 0.180, 1.30}},
    {{128, 32, 9, 2, 1, kAlone, 1}, {0.200, 0.200, 0.58}},
    {{128, 32, 8, 2, 4, kSplitK, 1}, {0.190, 0.190, 2.27}},
    {{128, 48, 8, 2, 1, kAlone, 1}, {0.260, 0.260, 0.60}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.350, 0.350, 0.61}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.200, 0.184, 0.49, 0.50}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.340, 0.290, 0.37, 0.50}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.360, 0.360, 0.61, 0.44}},
});
// Beside scales of A for 128 columns, as who quantises activations so has them.
constexpr auto kDenseMixed = std::to_array<Candidate>({
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.200, 0.170, 0.52}},
    {{64, 64, 10, 2, 1, kAlone, 1}, {0.180, 0.180, 1.30}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.350, 0.350, 0.61}},
});
constexpr auto kOfRowsMixed = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.340, 0.290, 0.37, 0.50}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.360, 0.360, 0.61, 0.44}},
});
// clang-format on

constexpr Operand kMx{.scaling = Scaling::Mx};
constexpr Kind kind(Grouping grouping, const Operand& a) { return {.grouping = grouping, .a = a, .b = kMx}; }

}  // namespace

std::vector<CandidateList> mx_candidates() {
    return {kListOf<kDense, kind(Grouping::None, kMx)>, kListOf<kOfRows, kind(Grouping::Rows, kMx)>,
            kListOf<kDenseMixed, kind(Grouping::None, kRowScaled)>,
            kListOf<kOfRowsMixed, kind(Grouping::Rows, kRowScaled)>};
}

}  // namespace finegemm::plan
