// Kernels for FP8 with MX scales of B, and of A or not. Layer plan.
// A promotion takes one or two instructions for each element and 32 of K, and five for 128 beside scales of A that
// serve these, where one of FP8 takes one: so tiles are those that wait for memory beside it, and of 64 columns at
// most, as several products have registers of their own. Tiles of 64 columns have their rows for WGMMA's columns
// (swaps_mx): one kernel of these serves all groups of rows. Rates are fitted to an H200's times of the dense table and
// of the masked rows (bench/mx_speed.py --sweep); those beside scales of A for 128 columns are what K = 7168 takes it.
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.285, 0.194, 0.73}},
    {{16, 64, 8, 2, 1, kAlone, 2}, {0.274, 0.147, 1.43}},
    {{16, 64, 8, 2, 2, kSplitK, 2}, {0.251, 0.138, 2.95}},
    {{16, 64, 8, 1, 4, kSplitK, 2}, {0.242, 0.055, 3.84}},
    {{16, 64, 8, 1, 8, kSplitK, 2}, {0.223, 0.050, 3.67}},
    {{32, 64, 7, 1, 1, kAlone, 2}, {0.412, 0.250, 0.92}},
    {{32, 64, 14, 2, 1, kAlone, 1}, {0.204, 0.204, 1.28}},
    {{32, 64, 7, 1, 2, kSplitK, 2}, {0.419, 0.189, 3.39}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.253, 0.078, 4.58}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.640, 0.411, 0.50}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.293, 0.293, 1.82}},
    {{64, 64, 5, 1, 2, kSplitK, 2}, {0.578, 0.338, 4.47}},
    {{64, 64, 10, 2, 2, kSplitK, 1}, {0.302, 0.302, 3.30}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.640, 0.273, 0.50, 0}},
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
