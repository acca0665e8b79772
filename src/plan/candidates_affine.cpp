// Kernels with an affine epilogue. Layer plan.
#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// One set of tiles of each height, and no parts of K: few kernels for many types. Blocks are taken to last as long as
// in the kernels of these tiles without an affine epilogue; tiles longer by the share of the bytes of C that the old D
// costs kernels in f32 that load it.
// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.189, 0.162, 0.72}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.89}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.384, 0.384, 1.39}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.456, 0.456, 1.89}},
});
constexpr auto kDenseF16 = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.89}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.384, 0.384, 1.39}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.456, 0.456, 1.89}},
});
constexpr auto kDenseF32 = std::to_array<Candidate>({
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.189, 0.162, 1.02}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.269, 0.233, 1.44}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.400, 0.400, 3.32}},
});
constexpr auto kRows = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.317, 0.216, 0.91, 0.50}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.450, 0.450, 1.41, 0.48}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.515, 0.515, 1.84, 0.49}},
});
constexpr auto kRowsF16 = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.317, 0.216, 0.91, 0.50}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.515, 0.515, 1.84, 0.49}},
});
constexpr auto kRowsF32 = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.317, 0.216, 1.44, 0.50}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.450, 0.450, 3.32, 0.48}},
});
constexpr auto kBf16Dense = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.172, 0.172, 0.60}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.354, 0.354, 0.93}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.499, 0.499, 1.38}},
});
constexpr auto kBf16DenseF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.173, 0.173, 1.20}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.370, 0.370, 4.58}},
});
constexpr auto kBf16Rows = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.185, 0.185, 0.73}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.520, 0.520, 1.47, 0.23}},
});
constexpr auto kBf16RowsF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.181, 0.181, 1.77}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.396, 0.396, 4.17, 0.30}},
});
// clang-format on

constexpr Kind kind(Grouping grouping, Output output, Operand a = kRowScaled, Operand b = kBlockScaled) {
    return {.grouping = grouping, .a = a, .b = b, .output = output, .affine = true};
}
constexpr Kind bf16_kind(Grouping grouping, Output output) {
    return kind(grouping, output, unscaled(Element::BF16), unscaled(Element::BF16));
}

template <const auto& List, Kind kKind>
constexpr auto kConfigs = configs_of(List, kKind);
template <const auto& List, Kind kKind>
constexpr CandidateList kList{kKind, kConfigs<List, kKind>, List};

constexpr CandidateList kLists[] = {kList<kDense, kind(Grouping::None, Output::BF16)>,
                                    kList<kDenseF16, kind(Grouping::None, Output::F16)>,
                                    kList<kDenseF32, kind(Grouping::None, Output::F32)>,
                                    kList<kRows, kind(Grouping::Rows, Output::BF16)>,
                                    kList<kRowsF16, kind(Grouping::Rows, Output::F16)>,
                                    kList<kRowsF32, kind(Grouping::Rows, Output::F32)>,
                                    kList<kBf16Dense, bf16_kind(Grouping::None, Output::BF16)>,
                                    kList<kBf16DenseF32, bf16_kind(Grouping::None, Output::F32)>,
                                    kList<kBf16Rows, bf16_kind(Grouping::Rows, Output::BF16)>,
                                    kList<kBf16RowsF32, bf16_kind(Grouping::Rows, Output::F32)>};

}  // namespace

std::span<const CandidateList> affine_candidates() { return kLists; }

}  // namespace finegemm::plan
