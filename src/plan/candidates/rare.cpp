// Kernels for types that few calls ask for, with scales: a small and a large tile of each kind. Layer plan.
// Rates are those of the same tiles in the lists of plan/candidates.cpp.
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// Scales of each row of B, and D in a type that the usual kernels do not write: 64 columns, whose scales are multiplied
// in FP32, for results that are batch-invariant, and 128, for the others. In groups of rows the tensor cores multiply
// the scales of all kernels.
// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.317, 0.228, 0.35}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.438, 0.438, 0.57}},
});
constexpr auto kOfRows = std::to_array<Candidate>({
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.496, 0.496, 1.43, 0.50}},
});
constexpr auto kOfRowsF32 = std::to_array<Candidate>({
    {{64, 128, 7, 1, 1, kAlone, 1}, {0.388, 0.388, 1.72, 0.50}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.496, 0.496, 2.29, 0.50}},
});
// With e5m2, which gradients have: A's of activations times weights, whose scales are of blocks, and either one's of
// weights, added to f32.
constexpr auto kBlocks = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.39}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.371, 0.371, 0.76}},
});
constexpr auto kBlocksOfRows = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.312, 0.213, 0.37, 0.50}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.424, 0.424, 0.67, 0.44}},
});
// With an affine epilogue, as gradients have that come from two sides.
constexpr auto kAffine = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.89}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.384, 0.384, 1.39}},
});
constexpr auto kAffineOfRows = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.317, 0.216, 0.91, 0.50}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.450, 0.450, 1.41, 0.48}},
});
constexpr auto kF32 = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.315, 0.242, 0.84, 0, 1.04}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.444, 0.444, 1.43}},
});
// clang-format on

constexpr Operand kE4m3 = kRowScaled, kE5m2{.element = Element::E5M2};
constexpr Kind kind(Grouping grouping, const Operand& a, const Operand& b, Output output,
                    Finish finish = Finish::None) {
    return {.grouping = grouping, .a = a, .b = b, .output = output, .finish = finish};
}

}  // namespace

std::vector<CandidateList> rare_candidates() {
    return {
        kListOf<kDense, kind(Grouping::None, kE4m3, kE4m3, Output::F16)>,
        kListOf<kOfRows, kind(Grouping::Rows, kE4m3, kE4m3, Output::F16)>,
        kListOf<kOfRowsF32, kind(Grouping::Rows, kE4m3, kE4m3, Output::F32)>,
        kListOf<kDense, kind(Grouping::K, kE4m3, kE4m3, Output::F16)>,
        kListOf<kBlocks, kind(Grouping::None, kE5m2, kBlockScaled, Output::BF16)>,
        kListOf<kBlocksOfRows, kind(Grouping::Rows, kE5m2, kBlockScaled, Output::BF16)>,
        kListOf<kAffine, kind(Grouping::None, kE5m2, kBlockScaled, Output::BF16, Finish::Affine)>,
        kListOf<kAffineOfRows, kind(Grouping::Rows, kE5m2, kBlockScaled, Output::BF16, Finish::Affine)>,
        kListOf<kDense, kind(Grouping::None, kE5m2, kE4m3, Output::BF16)>,
        kListOf<kF32, kind(Grouping::None, kE5m2, kE4m3, Output::F32)>,
        kListOf<kF32, kind(Grouping::None, kE4m3, kE5m2, Output::F32)>,
        kListOf<kF32, kind(Grouping::K, kE5m2, kE4m3, Output::F32)>,
        kListOf<kF32, kind(Grouping::K, kE4m3, kE5m2, Output::F32)>,
    };
}

}  // namespace finegemm::plan
