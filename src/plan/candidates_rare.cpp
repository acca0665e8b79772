// Kernels for types that few calls ask for, with scales: a small and a large tile of each. Layer plan.
// Rates are those of the same tiles in the lists of plan/candidates.cpp.
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// Of each row of B, with D in the type that the usual kernels do not write: 64 columns, whose scales are multiplied in
// FP32, for results that are batch-invariant, and 128, for the others. In groups of rows the tensor cores multiply the
// scales of all kernels.
// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.317, 0.228, 0.35}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.438, 0.438, 0.57}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.496, 0.496, 1.43, 0.50}},
});
constexpr auto kOfRowsF32 = std::to_array<Candidate>({
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.388, 0.388, 1.72, 0.50}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.496, 0.496, 2.29, 0.50}},
});
// clang-format on

constexpr Kind row_kind(Grouping grouping, Output output) {
    return {.grouping = grouping, .b = kRowScaled, .output = output};
}

}  // namespace

std::vector<CandidateList> rare_candidates() {
    return {
        kListOf<kDense, row_kind(Grouping::None, Output::F16)>,
        kListOf<kOfRows, row_kind(Grouping::Rows, Output::F16)>,
        kListOf<kOfRowsF32, row_kind(Grouping::Rows, Output::F32)>,
        kListOf<kDense, row_kind(Grouping::K, Output::BF16)>,
        kListOf<kDense, row_kind(Grouping::K, Output::F16)>,
    };
}

}  // namespace finegemm::plan
