// Kernels for A and B without scales. Layer plan.
#include "plan/candidates.h"
#include "plan/elements.h"

namespace finegemm::plan {

namespace {

// Fitted to times of bf16 on an H200, with M of 1 to 8192. Few rows take parts of K, in k-slices and in clusters; tiles
// of 64x64 with 13 stages are what batch invariance leaves them. Shared loads are slower by up to 3%.
// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.141, 0.141, 0.20}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.181, 0.181, 0.58}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.193, 0.193, 0.45}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.311, 0.311, 1.08}},
    {{128, 144, 5, 2, 1, kAlone, 1}, {0.340, 0.340, 1.27}},
    {{128, 176, 4, 2, 1, kAlone, 1}, {0.412, 0.412, 1.77}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.445, 0.445, 1.91}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.605, 0.605, 2.67}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.213, 0.173, 1.27}},
    {{64, 32, 16, 2, 1, kAlone, 1}, {0.086, 0.086, 0.72}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.126, 0.126, 0.71}},
    {{64, 64, 12, 2, 8, kSplitK, 1}, {0.132, 0.132, 3.74}},
    {{64, 64, 13, 1, 1, kAlone, 1}, {0.121, 0.121, 0.35}},
    {{128, 32, 8, 2, 4, kSplitK, 1}, {0.149, 0.149, 2.78}},
    {{128, 64, 7, 2, 4, kSplitK, 1}, {0.234, 0.234, 2.36}},
    {{128, 96, 7, 2, 1, kAlone, 1}, {0.245, 0.245, 0.79}},
});
constexpr auto kDenseF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.140, 0.140, 0.72, 0, 0.48}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.344, 0.344, 1.12, 0, 3.46}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.307, 0.307, 1.22}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.454, 0.454, 1.54}},
    {{64, 32, 14, 2, 8, kSplitK, 1}, {0.101, 0.101, 2.19}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.235, 0.140, 1.34}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.120, 0.120, 0.75}},
});
constexpr auto kRows = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.145, 0.145, 0.30}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.278, 0.278, 0.85, 0.61}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.372, 0.372, 0.93, 0.61}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.576, 0.576, 1.32, 0.44}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.663, 0.663, 1.97, 0.40}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.680, 0.680, 2.75, 0.70}},
});
constexpr auto kRowsF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.181, 0.181, 0.67}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.396, 0.396, 0.98, 0.30}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.517, 0.517, 2.25, 0.12}},
});
constexpr auto kOfK = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.150, 0.150, 0.36}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.339, 0.339, 0.92}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.496, 0.496, 1.13}},
});
constexpr auto kOfKF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.155, 0.155, 0.61, 0, 1.11}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.332, 0.332, 1.50, 0, 2.10}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.505, 0.505, 2.30, 0, 0.50}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.667, 0.667, 3.00, 0, 0.30}},
});
// For sums over stacks, of whose K each tile has a piece: the rates of groups of K, and of 64x128 what the others leave
// to it in bench/results/einsum_kernels_h200.json. CTAs that share rows stay closer together with four stages of
// 128x128 than with five.
constexpr auto kSum = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.150, 0.150, 0.61}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.250, 0.250, 2.20}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.342, 0.342, 4.40}},
    {{192, 128, 4, 3, 1, kAlone, 1}, {0.485, 0.485, 2.30}},
});
// clang-format on

// Where A or B is MN-major: dense products and groups of rows with rates of their own, others with those of the lists
// above.
template <size_t... Rows, size_t Count>
constexpr std::array<Candidate, sizeof...(Rows)> some(const std::array<Candidate, Count>& list) {
    return {list[Rows]...};
}
constexpr auto kDenseNn = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.146, 0.146, 0.33}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.120, 0.120, 1.56}},
    {{64, 64, 5, 1, 4, kSplitK, 2}, {0.371, 0.185, 2.03}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.185, 0.185, 0.57}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.313, 0.313, 1.14}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.433, 0.433, 1.60}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.584, 0.584, 2.34}},
});
constexpr auto kDenseTn = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.151, 0.151, 0.44}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.326, 0.326, 0.92}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.466, 0.466, 1.18}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.623, 0.623, 1.78}},
});
constexpr auto kDenseTt = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.136, 0.136, 0.36}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.458, 0.458, 1.40}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.622, 0.622, 1.79}},
});
// The rates of heads (bench/results/einsum_kernels_h200.json).
constexpr auto kRowsMn = std::to_array<Candidate>({
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.235, 0.235, 0.20}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.354, 0.354, 0.60, 0.34}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.660, 0.660, 1.38, 0.14}},
});
constexpr auto kDenseMnF32 = some<0, 2, 3>(kDenseF32);
constexpr auto kTwoMnF32 = some<0, 3>(kDenseF32);

/// The list of one kind of products, whose configurations lie here.
template <const auto& Rows, Kind Of>
constexpr auto kConfigs = configs_of(Rows, Of);
template <const auto& Rows, Kind Of>
constexpr CandidateList list_of() {
    return {Of, kConfigs<Rows, Of>, Rows};
}

constexpr Kind kind(Element element, Grouping grouping, DType d, Major a = Major::K, Major b = Major::K) {
    return {
        .grouping = grouping, .a = unscaled(element, a), .b = unscaled(element, b), .output = *find_type(d)->output};
}

/// D is of the type that it has where nobody says, or f32.
template <Element Of>
void add_lists(std::vector<CandidateList>& all) {
    constexpr DType kUsual = type_of(Of).results[0];
    const CandidateList lists[] = {
        list_of<kDense, kind(Of, Grouping::None, kUsual)>(), list_of<kDenseF32, kind(Of, Grouping::None, DType::F32)>(),
        list_of<kRows, kind(Of, Grouping::Rows, kUsual)>(),  list_of<kRowsF32, kind(Of, Grouping::Rows, DType::F32)>(),
        list_of<kOfK, kind(Of, Grouping::K, kUsual)>(),      list_of<kOfKF32, kind(Of, Grouping::K, DType::F32)>(),
        list_of<kSum, kind(Of, Grouping::Sum, DType::F32)>()};
    all.insert(all.end(), std::begin(lists), std::end(lists));
    constexpr Grouping kNone = Grouping::None, kOfRows = Grouping::Rows, kGroupsOfK = Grouping::K;
    constexpr Major kK = Major::K, kMn = Major::MN;
    constexpr DType kF32 = DType::F32;
    const CandidateList layouts[] = {list_of<kDenseNn, kind(Of, kNone, kUsual, kK, kMn)>(),
                                     list_of<kDenseMnF32, kind(Of, kNone, kF32, kK, kMn)>(),
                                     list_of<kRowsMn, kind(Of, kOfRows, kUsual, kK, kMn)>(),
                                     list_of<kRowsF32, kind(Of, kOfRows, kF32, kK, kMn)>(),
                                     list_of<kDenseTn, kind(Of, kNone, kUsual, kMn, kMn)>(),
                                     list_of<kDenseMnF32, kind(Of, kNone, kF32, kMn, kMn)>(),
                                     list_of<kDenseTt, kind(Of, kNone, kUsual, kMn, kK)>(),
                                     list_of<kTwoMnF32, kind(Of, kNone, kF32, kMn, kK)>(),
                                     list_of<kOfK, kind(Of, kGroupsOfK, kUsual, kMn, kMn)>(),
                                     list_of<kOfKF32, kind(Of, kGroupsOfK, kF32, kMn, kMn)>()};
    all.insert(all.end(), std::begin(layouts), std::end(layouts));
}

}  // namespace

std::vector<CandidateList> unscaled_candidates() {
    std::vector<CandidateList> all;
    const auto add = [&]<size_t I>() {
        if constexpr (is_unscaled(kElementTypes[I])) add_lists<*kElementTypes[I].operand>(all);
    };
    [&]<size_t... I>(std::index_sequence<I...>) {
        (add.template operator()<I>(), ...);
    }(std::make_index_sequence<std::size(kElementTypes)>());
    return all;
}

}  // namespace finegemm::plan
