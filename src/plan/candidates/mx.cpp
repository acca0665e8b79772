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
    {{64, 64, 4, 1, 1, kAlone, 2}, {0.40, 0.30, 0.5}},
    {{64, 64, 8, 2, 1, kAlone, 1}, {0.22, 0.22, 0.7}},
    {{64, 128, 6, 2, 1, kAlone, 1}, {0.40, 0.40, 0.7}},
    {{64, 64, 3, 1, 2, kSplitK, 2}, {0.40, 0.30, 2.0}},
    {{64, 64, 3, 1, 4, kSplitK, 2}, {0.40, 0.30, 2.5}},
    {{64, 64, 3, 1, 8, kSplitK, 2}, {0.40, 0.30, 3.0}},
    {{64, 64, 6, 2, 2, kSplitK, 1}, {0.22, 0.22, 2.0}},
    {{64, 64, 6, 2, 4, kSplitK, 1}, {0.22, 0.22, 2.5}},
    {{64, 128, 5, 2, 2, kSplitK, 1}, {0.40, 0.40, 2.0}},
    {{64, 128, 5, 2, 4, kSplitK, 1}, {0.40, 0.40, 2.5}},
    {{128, 64, 5, 1, 1, kAlone, 1}, {0.45, 0.45, 1.0}},
    {{128, 64, 4, 1, 2, kSplitK, 1}, {0.45, 0.45, 2.0}},
    {{128, 64, 4, 1, 4, kSplitK, 1}, {0.45, 0.45, 3.0}},
    {{128, 64, 4, 1, 8, kSplitK, 1}, {0.45, 0.45, 3.0}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.65, 0.65, 1.0}},
    {{128, 128, 3, 2, 2, kSplitK, 1}, {0.65, 0.65, 2.0}},
    {{128, 128, 3, 2, 4, kSplitK, 1}, {0.65, 0.65, 3.0}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{16, 64, 8, 1, 1, kAlone, 2}, {0.293, 0.128, 0.61, 0}},
    {{32, 64, 7, 1, 1, kAlone, 2}, {0.422, 0.422, 0.88, 0}},
    {{64, 64, 4, 1, 1, kAlone, 2}, {0.40, 0.30, 0.5, 0.3}},
    {{64, 128, 6, 2, 1, kAlone, 1}, {0.40, 0.40, 0.7, 0.3}},
    {{128, 64, 5, 1, 1, kAlone, 1}, {0.45, 0.45, 1.0, 0.4}},
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
