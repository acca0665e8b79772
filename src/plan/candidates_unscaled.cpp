// Kernels for A and B without scales. Layer plan.
#include "plan/candidates.h"
#include "plan/elements.h"

namespace finegemm::plan {

namespace {

// Measured with bf16 on an H200 with four waves of tiles and K of 1024 and 4096 each. No kernel has a part of K alone,
// or clusters, which are slower here (shared loads by up to 3%): rows of 4096 have tiles enough, and fewer rows come
// later.
// clang-format off
constexpr auto kDense = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.172, 0.172, 0.10}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.235, 0.235, 0.10}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.321, 0.321, 0.10}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.354, 0.354, 0.13}},
    {{128, 144, 5, 2, 1, kAlone, 1}, {0.388, 0.388, 0.18}},
    {{128, 176, 4, 2, 1, kAlone, 1}, {0.463, 0.463, 0.50}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.499, 0.499, 0.58}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.660, 0.660, 0.90}},
});
constexpr auto kDenseF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.173, 0.173, 0.10, 0, 1.10}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.370, 0.370, 1.39, 0, 3.19}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.351, 0.351, 1.23}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.503, 0.503, 2.02}},
});
constexpr auto kRows = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.185, 0.185, 0.23}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.402, 0.402, 0.10, 0.34}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.520, 0.520, 0.67, 0.23}},
    {{128, 256, 3, 2, 1, kAlone, 1}, {0.688, 0.688, 1.38, 0.14}},
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
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.342, 0.342, 2.52, 0, 2.71}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.332, 0.332, 1.99}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.499, 0.499, 2.30}},
});
// For sums over stacks, of whose K each tile has a piece: the rates of groups of K.
constexpr auto kSum = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.155, 0.155, 0.61}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.332, 0.332, 1.99}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.499, 0.499, 2.30}},
});
// With an affine epilogue: tiles longer by the share of the bytes of C that the old D costs (plan/candidates.cpp).
constexpr auto kAffine = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.172, 0.172, 0.60}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.354, 0.354, 0.93}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.499, 0.499, 1.38}},
});
constexpr auto kAffineF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.173, 0.173, 1.20}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.370, 0.370, 4.58}},
});
constexpr auto kAffineRows = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.185, 0.185, 0.73}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.520, 0.520, 1.47, 0.23}},
});
constexpr auto kAffineRowsF32 = std::to_array<Candidate>({
    {{64, 64, 8, 1, 1, kAlone, 1}, {0.181, 0.181, 1.77}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.396, 0.396, 4.17, 0.30}},
});
// clang-format on

// Where A or B is MN-major: some rows of the lists above, whose rates hold until these kernels have been measured. In
// groups of rows 24 registers do not suffice to load the boxes of 256 columns.
template <size_t... Rows, size_t Count>
constexpr std::array<Candidate, sizeof...(Rows)> some(const std::array<Candidate, Count>& list) {
    return {list[Rows]...};
}
constexpr auto kDenseMn = some<0, 1, 3, 6, 7>(kDense);
constexpr auto kFewMn = some<0, 3, 6>(kDense);
constexpr auto kRowsMn = some<0, 1, 2>(kRows);
constexpr auto kTwoMn = some<0, 6>(kDense);
constexpr auto kDenseMnF32 = some<0, 2, 3>(kDenseF32);
constexpr auto kTwoMnF32 = some<0, 3>(kDenseF32);
constexpr auto kOfKMnF32 = some<0, 2, 3>(kOfKF32);
constexpr auto kAffineMn = some<0, 2>(kAffine);

/// The list of one kind of products, whose configurations lie here.
template <const auto& Rows, Kind Of>
constexpr auto kConfigs = configs_of(Rows, Of);
template <const auto& Rows, Kind Of>
constexpr CandidateList list_of() {
    return {Of, kConfigs<Rows, Of>, Rows};
}

constexpr Kind kind(Element element, Grouping grouping, DType d, Major a, Major b, Finish finish = Finish::None) {
    return {.grouping = grouping,
            .a = unscaled(element, a),
            .b = unscaled(element, b),
            .output = *find_type(d)->output,
            .finish = finish};
}
constexpr Kind kind(Element element, Grouping grouping, DType d, Finish finish = Finish::None) {
    return kind(element, grouping, d, Major::K, Major::K, finish);
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
    const CandidateList layouts[] = {list_of<kDenseMn, kind(Of, kNone, kUsual, kK, kMn)>(),
                                     list_of<kDenseMnF32, kind(Of, kNone, kF32, kK, kMn)>(),
                                     list_of<kRowsMn, kind(Of, kOfRows, kUsual, kK, kMn)>(),
                                     list_of<kRowsF32, kind(Of, kOfRows, kF32, kK, kMn)>(),
                                     list_of<kFewMn, kind(Of, kNone, kUsual, kMn, kMn)>(),
                                     list_of<kDenseMnF32, kind(Of, kNone, kF32, kMn, kMn)>(),
                                     list_of<kTwoMn, kind(Of, kNone, kUsual, kMn, kK)>(),
                                     list_of<kTwoMnF32, kind(Of, kNone, kF32, kMn, kK)>(),
                                     list_of<kOfK, kind(Of, kGroupsOfK, kUsual, kMn, kMn)>(),
                                     list_of<kOfKMnF32, kind(Of, kGroupsOfK, kF32, kMn, kMn)>()};
    all.insert(all.end(), std::begin(layouts), std::end(layouts));
    if constexpr (Of == Element::BF16) {  // not in f16, whose kernels write the product alone
        const CandidateList affine[] = {
            list_of<kAffine, kind(Of, Grouping::None, kUsual, Finish::Affine)>(),
            list_of<kAffineF32, kind(Of, Grouping::None, DType::F32, Finish::Affine)>(),
            list_of<kAffineRows, kind(Of, Grouping::Rows, kUsual, Finish::Affine)>(),
            list_of<kAffineRowsF32, kind(Of, Grouping::Rows, DType::F32, Finish::Affine)>(),
            list_of<kAffineMn, kind(Of, kNone, kUsual, kK, kMn, Finish::Affine)>(),
            list_of<kAffineF32, kind(Of, kNone, kF32, kK, kMn, Finish::Affine)>(),
            list_of<kAffineRows, kind(Of, kOfRows, kUsual, kK, kMn, Finish::Affine)>(),
            list_of<kAffineRowsF32, kind(Of, kOfRows, kF32, kK, kMn, Finish::Affine)>(),
            list_of<kAffineMn, kind(Of, kNone, kUsual, kMn, kMn, Finish::Affine)>(),
            list_of<kAffineF32, kind(Of, kNone, kF32, kMn, kMn, Finish::Affine)>(),
            list_of<kAffineMn, kind(Of, kNone, kUsual, kMn, kK, Finish::Affine)>(),
            list_of<kAffineF32, kind(Of, kNone, kF32, kMn, kK, Finish::Affine)>()};
        all.insert(all.end(), std::begin(affine), std::end(affine));
    }
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
