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
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.200, 0.150, 0.60}},
    {{16, 64, 8, 2, 1, kAlone, 2}, {0.200, 0.150, 0.60}},
    {{16, 64, 16, 2, 1, kAlone, 1}, {0.200, 0.150, 0.60}},
    {{16, 128, 5, 2, 1, kAlone, 2}, {0.200, 0.150, 0.60}},
    {{16, 64, 8, 1, 2, kSplitK, 2}, {0.200, 0.150, 2.00}},
    {{16, 64, 8, 1, 4, kSplitK, 2}, {0.200, 0.150, 2.50}},
    {{16, 64, 8, 1, 8, kSplitK, 2}, {0.200, 0.150, 3.50}},
    {{16, 64, 8, 2, 2, kSplitK, 2}, {0.150, 0.100, 2.00}},
    {{16, 64, 8, 2, 4, kSplitK, 2}, {0.150, 0.100, 2.50}},
    {{16, 64, 8, 2, 8, kSplitK, 2}, {0.150, 0.100, 3.50}},
    {{32, 64, 7, 1, 1, kAlone, 2}, {0.250, 0.200, 0.60}},
    {{32, 64, 14, 2, 1, kAlone, 1}, {0.250, 0.200, 0.60}},
    {{32, 128, 9, 2, 1, kAlone, 1}, {0.250, 0.200, 0.60}},
    {{32, 64, 7, 1, 2, kSplitK, 2}, {0.250, 0.200, 2.00}},
    {{32, 64, 7, 1, 4, kSplitK, 2}, {0.250, 0.200, 2.50}},
    {{32, 64, 7, 1, 8, kSplitK, 2}, {0.250, 0.200, 3.50}},
    {{32, 64, 14, 2, 4, kSplitK, 1}, {0.200, 0.200, 2.50}},
    {{32, 64, 14, 2, 8, kSplitK, 1}, {0.200, 0.200, 3.50}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.400, 0.300, 0.60}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.400, 0.300, 0.60}},
    {{64, 128, 7, 2, 1, kAlone, 1}, {0.400, 0.300, 0.60}},
    {{64, 64, 5, 1, 2, kSplitK, 2}, {0.400, 0.300, 2.00}},
    {{64, 64, 5, 1, 4, kSplitK, 2}, {0.400, 0.300, 2.50}},
    {{64, 64, 5, 1, 8, kSplitK, 2}, {0.400, 0.300, 3.50}},
    {{64, 64, 10, 2, 2, kSplitK, 1}, {0.300, 0.300, 2.00}},
    {{64, 64, 10, 2, 4, kSplitK, 1}, {0.300, 0.300, 2.50}},
    {{64, 64, 10, 2, 8, kSplitK, 1}, {0.300, 0.300, 3.50}},
    {{128, 48, 8, 2, 1, kAlone, 1}, {0.543, 0.543, 0.72}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.654, 0.654, 1.76}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.200, 0.200, 0.60, 0.0}},
    {{16, 128, 5, 2, 1, kAlone, 2}, {0.300, 0.300, 0.60, 0.0}},
    {{32, 64, 7, 1, 1, kAlone, 2}, {0.250, 0.250, 0.60, 0.0}},
    {{32, 128, 9, 2, 1, kAlone, 1}, {0.300, 0.300, 0.60, 0.0}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.400, 0.400, 0.60, 0.0}},
    {{64, 128, 7, 2, 1, kAlone, 1}, {0.400, 0.400, 0.60, 0.0}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.712, 0.712, 0.74, 0.79}},
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
