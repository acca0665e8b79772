// Kernels for FP8 with MX scales of B, and of A or not. Layer plan.
// A promotion takes two instructions for each element and 32 of K, and five for 128 beside scales of A that serve
// these, where one of FP8 takes one: so tiles are those that wait for memory beside it, and of 64 columns at most, as
// four products have registers of their own. Rates are fitted to an H200's times of the dense table and of the masked
// rows (bench/mx_speed.py --sweep); those beside scales of A for 128 columns are what K = 7168 takes it.
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.25, 0.20, 0.5}},
    {{16, 64, 16, 2, 1, kAlone, 1}, {0.15, 0.15, 0.7}},
    {{16, 128, 9, 2, 1, kAlone, 1}, {0.25, 0.25, 0.7}},
    {{16, 64, 7, 1, 2, kSplitK, 2}, {0.25, 0.20, 2.0}},
    {{16, 64, 7, 1, 4, kSplitK, 2}, {0.25, 0.20, 2.5}},
    {{16, 64, 7, 1, 8, kSplitK, 2}, {0.25, 0.20, 3.0}},
    {{16, 64, 14, 2, 4, kSplitK, 1}, {0.15, 0.15, 2.5}},
    {{16, 64, 14, 2, 8, kSplitK, 1}, {0.15, 0.15, 3.0}},
    {{32, 64, 6, 1, 1, kAlone, 2}, {0.28, 0.22, 0.5}},
    {{32, 64, 12, 2, 1, kAlone, 1}, {0.16, 0.16, 0.7}},
    {{32, 128, 8, 2, 1, kAlone, 1}, {0.28, 0.28, 0.7}},
    {{32, 64, 5, 1, 2, kSplitK, 2}, {0.28, 0.22, 2.0}},
    {{32, 64, 5, 1, 4, kSplitK, 2}, {0.28, 0.22, 2.5}},
    {{32, 64, 5, 1, 8, kSplitK, 2}, {0.28, 0.22, 3.0}},
    {{32, 64, 10, 2, 4, kSplitK, 1}, {0.16, 0.16, 2.5}},
    {{32, 64, 10, 2, 8, kSplitK, 1}, {0.16, 0.16, 3.0}},
    {{64, 64, 4, 1, 1, kAlone, 2}, {0.40, 0.30, 0.5}},
    {{64, 64, 8, 2, 1, kAlone, 1}, {0.22, 0.22, 0.7}},
    {{64, 128, 6, 2, 1, kAlone, 1}, {0.40, 0.40, 0.7}},
    {{64, 64, 3, 1, 2, kSplitK, 2}, {0.40, 0.30, 2.0}},
    {{64, 64, 3, 1, 4, kSplitK, 2}, {0.40, 0.30, 2.5}},
    {{64, 64, 3, 1, 8, kSplitK, 2}, {0.40, 0.30, 3.0}},
    {{64, 64, 8, 2, 2, kSplitK, 1}, {0.22, 0.22, 2.0}},
    {{64, 64, 8, 2, 4, kSplitK, 1}, {0.22, 0.22, 2.5}},
    {{64, 64, 8, 2, 8, kSplitK, 1}, {0.22, 0.22, 3.0}},
    {{64, 128, 5, 2, 2, kSplitK, 1}, {0.40, 0.40, 2.0}},
    {{64, 128, 5, 2, 4, kSplitK, 1}, {0.40, 0.40, 2.5}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.65, 0.65, 1.0}},
    {{128, 128, 3, 2, 2, kSplitK, 1}, {0.65, 0.65, 2.0}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.25, 0.20, 0.5, 0.0}},
    {{32, 64, 6, 1, 1, kAlone, 2}, {0.28, 0.22, 0.5, 0.2}},
    {{32, 128, 8, 2, 1, kAlone, 1}, {0.28, 0.28, 0.7, 0.2}},
    {{64, 64, 4, 1, 1, kAlone, 2}, {0.40, 0.30, 0.5, 0.3}},
    {{64, 128, 6, 2, 1, kAlone, 1}, {0.40, 0.40, 0.7, 0.3}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.65, 0.65, 1.0, 0.5}},
});
// Beside scales of A for 128 columns, as who quantises activations so has them.
constexpr auto kDenseMixed = std::to_array<Candidate>({
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.360, 0.250, 0.52}},
    {{64, 64, 10, 2, 1, kAlone, 1}, {0.315, 0.315, 1.50}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.540, 0.540, 0.90}},
});
constexpr auto kOfRowsMixed = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.600, 0.450, 0.60, 0.50}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.540, 0.540, 0.74, 0.60}},
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
