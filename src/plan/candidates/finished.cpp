// Kernels for A and B without scales whose D is more than the product, or lies in heads with gaps. Layer plan.
#include "plan/candidates.h"
#include "plan/elements.h"

namespace finegemm::plan {

namespace {

constexpr Grouping kOne = Grouping::None, kGroups = Grouping::Rows;
constexpr Major kK = Major::K, kMn = Major::MN;

// With an affine epilogue the rates of the products alone, and tiles longer by the share of the bytes of C that the old
// D costs (plan/candidates.cpp). With gaps in heads those of kernels that store strips.
// clang-format off
constexpr auto kAffineOfRows = std::to_array<Candidate>({{{128, 128, 5, 2, 1, kAlone, 1}, {0.372, 0.372, 1.73, 0.61}}});
constexpr auto kAffineOfRowsF32 =
    std::to_array<Candidate>({{{128, 128, 4, 2, 1, kAlone, 1}, {0.396, 0.396, 4.17, 0.30}}});
struct ListsBf16 {
    static constexpr Element kOf = Element::BF16;
    static constexpr auto kAffine = std::to_array<Candidate>({
        {{64, 64, 8, 1, 1, kAlone, 1}, {0.141, 0.141, 0.70}},
        {{128, 128, 5, 2, 1, kAlone, 1}, {0.311, 0.311, 1.88}},
        {{128, 192, 4, 2, 1, kAlone, 1}, {0.445, 0.445, 2.71}},
    });
    static constexpr auto kAffineMn = std::to_array<Candidate>({
        {{64, 64, 8, 1, 1, kAlone, 1}, {0.141, 0.141, 0.70}},
        {{128, 192, 4, 2, 1, kAlone, 1}, {0.445, 0.445, 2.71}},
    });
    static constexpr auto kAffineF32 = std::to_array<Candidate>({
        {{64, 64, 8, 1, 1, kAlone, 1}, {0.140, 0.140, 1.20}},
        {{128, 128, 4, 2, 1, kAlone, 1}, {0.344, 0.344, 4.58}},
    });
    static constexpr auto kAffineRows = std::to_array<Candidate>({
        {{64, 64, 8, 1, 1, kAlone, 1}, {0.128, 0.128, 1.21}},
        {{128, 192, 4, 2, 1, kAlone, 1}, {0.576, 0.576, 2.12, 0.44}},
    });
    static constexpr auto kAffineRowsF32 = std::to_array<Candidate>({
        {{64, 64, 8, 1, 1, kAlone, 1}, {0.181, 0.181, 1.77}},
        {{128, 128, 4, 2, 1, kAlone, 1}, {0.396, 0.396, 4.17, 0.30}},
    });
    static constexpr auto kHeadGaps = std::to_array<Candidate>({
        {{64, 64, 8, 1, 1, kAlone, 1}, {0.172, 0.172, 0.20}},
        {{128, 128, 5, 2, 1, kAlone, 1}, {0.354, 0.354, 0.43}},
        {{128, 192, 4, 2, 1, kAlone, 1}, {0.499, 0.499, 0.98}},
    });
};
// One tile serves each of the kinds that few calls ask for: 64x128 one product of any M, 128x128 groups of rows.
struct ListsF16 {
    static constexpr Element kOf = Element::F16;
    static constexpr auto kAffine = std::to_array<Candidate>({
        {{64, 128, 8, 1, 1, kAlone, 1}, {0.181, 0.181, 1.58}},
        {{128, 192, 4, 2, 1, kAlone, 1}, {0.445, 0.445, 2.71}},
    });
    static constexpr auto kAffineMn = std::to_array<Candidate>({{{64, 128, 8, 1, 1, kAlone, 1}, {0.185, 0.185, 1.57}}});
    static constexpr auto kAffineF32 = std::to_array<Candidate>({{{64, 128, 7, 1, 1, kAlone, 1}, {0.185, 0.185, 2.4}}});
    static constexpr auto kAffineRows = kAffineOfRows;
    static constexpr auto kAffineRowsF32 = kAffineOfRowsF32;
    static constexpr auto kHeadGaps = std::to_array<Candidate>({{{64, 128, 8, 1, 1, kAlone, 1}, {0.235, 0.235, 0.20}}});
};
// clang-format on
/// With gaps in heads where A or B is MN-major.
constexpr auto kHeadGapsMn = ListsF16::kHeadGaps;

template <Element Of>
constexpr Kind kind(Grouping grouping, Output output, Major a, Major b, Finish finish) {
    return {.grouping = grouping, .a = unscaled(Of, a), .b = unscaled(Of, b), .output = output, .finish = finish};
}

template <typename Lists>
void add_lists(std::vector<CandidateList>& all) {
    constexpr Output kUsual = *find_type(type_of(Lists::kOf).results[0])->output, kF32 = Output::F32;
    constexpr auto affine = [](Grouping grouping, Output output, Major a, Major b) {
        return kind<Lists::kOf>(grouping, output, a, b, Finish::Affine);
    };
    constexpr auto gaps = [](Major a, Major b) { return kind<Lists::kOf>(kOne, kUsual, a, b, Finish::HeadGaps); };
    const CandidateList lists[] = {kListOf<Lists::kAffine, affine(kOne, kUsual, kK, kK)>,
                                   kListOf<Lists::kAffineMn, affine(kOne, kUsual, kK, kMn)>,
                                   kListOf<Lists::kAffineMn, affine(kOne, kUsual, kMn, kMn)>,
                                   kListOf<Lists::kAffineMn, affine(kOne, kUsual, kMn, kK)>,
                                   kListOf<Lists::kAffineF32, affine(kOne, kF32, kK, kK)>,
                                   kListOf<Lists::kAffineF32, affine(kOne, kF32, kK, kMn)>,
                                   kListOf<Lists::kAffineF32, affine(kOne, kF32, kMn, kMn)>,
                                   kListOf<Lists::kAffineF32, affine(kOne, kF32, kMn, kK)>,
                                   kListOf<Lists::kAffineRows, affine(kGroups, kUsual, kK, kK)>,
                                   kListOf<Lists::kAffineRows, affine(kGroups, kUsual, kK, kMn)>,
                                   kListOf<Lists::kAffineRowsF32, affine(kGroups, kF32, kK, kK)>,
                                   kListOf<Lists::kAffineRowsF32, affine(kGroups, kF32, kK, kMn)>,
                                   kListOf<kAffineOfRows, affine(kGroups, kUsual, kMn, kMn)>,
                                   kListOf<kAffineOfRows, affine(kGroups, kUsual, kMn, kK)>,
                                   kListOf<kAffineOfRowsF32, affine(kGroups, kF32, kMn, kMn)>,
                                   kListOf<kAffineOfRowsF32, affine(kGroups, kF32, kMn, kK)>,
                                   kListOf<Lists::kHeadGaps, gaps(kK, kK)>,
                                   kListOf<kHeadGapsMn, gaps(kK, kMn)>,
                                   kListOf<kHeadGapsMn, gaps(kMn, kMn)>,
                                   kListOf<kHeadGapsMn, gaps(kMn, kK)>};
    all.insert(all.end(), std::begin(lists), std::end(lists));
}

}  // namespace

std::vector<CandidateList> finished_candidates() {
    std::vector<CandidateList> all;
    add_lists<ListsBf16>(all);
    add_lists<ListsF16>(all);
    return all;
}

}  // namespace finegemm::plan
