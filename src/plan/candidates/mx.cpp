// Kernels for FP8 with MX scales of B, and of A or not. Layer plan.
// A promotion takes two instructions for each element and 32 of K, and five for 128 beside scales of A that serve
// these, where one of FP8 takes one: so tiles are those that wait for memory beside it, and of 64 columns at most, as
// four products have registers of their own. Tiles of 16 and 32 rows, and of 64 in k-slices, have these for WGMMA's
// columns (swaps_mx). Rates are fitted to an H200's times of the dense table and of the masked rows (bench/mx_speed.py
// --sweep); those beside scales of A for 128 columns are what K = 7168 takes it.
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.278, 0.195, 0.89}},
    {{16, 64, 8, 2, 1, kAlone, 2}, {0.256, 0.141, 1.65}},
    {{16, 64, 8, 2, 2, kSplitK, 2}, {0.246, 0.131, 2.96}},
    {{16, 64, 8, 1, 4, kSplitK, 2}, {0.257, 0.074, 3.30}},
    {{16, 64, 8, 1, 8, kSplitK, 2}, {0.230, 0.050, 3.56}},
    {{32, 64, 7, 1, 1, kAlone, 2}, {0.395, 0.241, 1.00}},
    {{32, 64, 14, 2, 1, kAlone, 1}, {0.186, 0.186, 1.48}},
    {{32, 64, 7, 1, 2, kSplitK, 2}, {0.383, 0.181, 3.62}},
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.360, 0.245, 0.57}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.245, 0.085, 5.18}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.242, 0.079, 4.31}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.718, 0.375, 1.00}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.280, 0.280, 1.68}},
    {{64, 64, 10, 2, 2, kSplitK, 1}, {0.283, 0.283, 3.01}},
    {{128, 48, 8, 2, 1, kAlone, 1}, {0.559, 0.559, 0.72}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.654, 0.654, 1.76}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.293, 0.128, 0.61, 0}},
    {{32, 64, 7, 1, 1, kAlone, 2}, {0.422, 0.422, 0.88, 0}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.671, 0.515, 0.81, 0.50}},
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
