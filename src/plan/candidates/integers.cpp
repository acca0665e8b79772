// Kernels for integers of eight bits. Layer plan.
// Tiles of FP8 that its planner takes for the dense table and for experts, of widths that wgmma has for integers:
// multiples of 16. Rates are those of the same tiles in FP8 (plan/candidates.cpp), but for 128 rows and more, whose
// promotions show: what K = 7168 takes an H200 (bench/results/int8_h200.json).
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.189, 0.162, 0.52}},
    {{64, 32, 16, 2, 1, kAlone, 1}, {0.105, 0.105, 0.83}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.304, 0.149, 1.35}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.220, 0.132, 1.70}},
    {{64, 32, 6, 1, 8, kSplitK, 2}, {0.257, 0.165, 1.65}},
    {{64, 48, 12, 2, 1, kAlone, 1}, {0.130, 0.130, 1.48}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.39}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.131, 0.131, 1.30}},
    {{64, 80, 12, 2, 1, kAlone, 1}, {0.157, 0.157, 1.61}},
    {{64, 144, 8, 2, 1, kAlone, 1}, {0.240, 0.240, 1.80}},
    {{128, 32, 8, 2, 4, kSplitK, 1}, {0.130, 0.130, 2.27}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.270, 0.270, 0.61}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.415, 0.415, 0.59}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.413, 0.413, 0.76}},
    {{128, 144, 6, 2, 1, kAlone, 1}, {0.450, 0.450, 0.96}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.487, 0.487, 0.89}},
    {{128, 176, 4, 2, 1, kAlone, 1}, {0.530, 0.530, 1.28}},
    {{128, 192, 5, 2, 1, kAlone, 1}, {0.575, 0.575, 1.18}},
    {{128, 208, 4, 2, 1, kAlone, 1}, {0.610, 0.610, 1.56}},
    {{128, 224, 4, 2, 1, kAlone, 1}, {0.655, 0.655, 1.70}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.790, 0.790, 1.56}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.184, 0.184, 0.49, 0.50}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.312, 0.213, 0.37, 0.50}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.277, 0.277, 0.48, 0.50}},
    {{128, 96, 7, 2, 1, kAlone, 1}, {0.380, 0.380, 0.59, 0.84}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.470, 0.470, 0.67, 0.44}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.530, 0.530, 0.84, 0.49}},
    {{128, 192, 5, 2, 1, kAlone, 1}, {0.600, 0.600, 0.75, 0.43}},
    {{256, 128, 4, 2, 2, kShareA, 1}, {0.820, 0.820, 1.41, 0.73}},
});
// Scales of each row of B: 64 columns for results that are batch-invariant, and 128, for the others.
constexpr auto kRowScales = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.317, 0.228, 0.35}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.438, 0.438, 0.57}},
});
constexpr auto kRowScalesOfRows = std::to_array<Candidate>({
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.388, 0.388, 1.07, 0.50}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.496, 0.496, 1.43, 0.50}},
});
// clang-format on

constexpr Operand kRows{.element = Element::I8}, kBlocks{.element = Element::I8, .scaling = Scaling::Blocks};
constexpr Kind kind(Grouping grouping, const Operand& b) { return {.grouping = grouping, .a = kRows, .b = b}; }

}  // namespace

std::vector<CandidateList> integer_candidates() {
    return {kListOf<kDense, kind(Grouping::None, kBlocks)>, kListOf<kOfRows, kind(Grouping::Rows, kBlocks)>,
            kListOf<kRowScales, kind(Grouping::None, kRows)>, kListOf<kRowScalesOfRows, kind(Grouping::Rows, kRows)>};
}

}  // namespace finegemm::plan
