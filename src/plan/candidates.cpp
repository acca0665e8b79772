// The kernels that the planner chooses from, their names and their rates. Layer plan.
#include <algorithm>
#include <array>
#include <iterator>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "plan/candidates.h"

namespace finegemm::plan {

namespace {

// Nearly each is the best one for some of 756 shapes: the dense table, random shapes and layers of real models
// (bench/results/sweep_h200.json). Small tiles stream weights for few rows, two CTAs to an SM; K is split over a
// cluster where tiles do not fill the device. 128x32 alone and 64x16 of one warpgroup are hardly ever the best, but
// batch invariance asks for them.
// clang-format off
constexpr auto kCandidates = std::to_array<Candidate>({
    {{64, 16, 10, 1, 1, kAlone, 2}, {0.156, 0.140, 0.58}},
    {{64, 16, 10, 2, 1, kAlone, 2}, {0.172, 0.128, 0.57}},
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.189, 0.162, 0.52}},
    {{64, 32, 16, 2, 1, kAlone, 1}, {0.105, 0.105, 0.83}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.304, 0.149, 1.35}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.220, 0.132, 1.70}},
    {{64, 32, 6, 1, 8, kSplitK, 2}, {0.257, 0.165, 1.65}},
    {{64, 40, 14, 2, 1, kAlone, 1}, {0.115, 0.115, 1.28}},
    {{64, 48, 7, 1, 1, kAlone, 2}, {0.210, 0.178, 0.93}},
    {{64, 48, 12, 2, 1, kAlone, 1}, {0.130, 0.130, 1.48}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.269, 0.233, 0.40}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.39}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.131, 0.131, 1.30}},
    {{64, 64, 12, 2, 2, kShareA, 1}, {0.246, 0.246, 1.22}},
    {{64, 80, 10, 2, 1, kAlone, 1}, {0.169, 0.169, 1.28}},
    {{64, 80, 12, 2, 1, kAlone, 1}, {0.157, 0.157, 1.61}},
    {{64, 96, 10, 2, 1, kAlone, 1}, {0.184, 0.184, 1.29}},
    {{64, 128, 8, 2, 1, kAlone, 1}, {0.222, 0.222, 1.16}},
    {{64, 144, 8, 2, 1, kAlone, 1}, {0.240, 0.240, 1.80}},
    {{128, 32, 10, 2, 1, kAlone, 1}, {0.192, 0.192, 0.58}},
    {{128, 32, 8, 2, 4, kSplitK, 1}, {0.130, 0.130, 2.27}},
    {{128, 64, 8, 2, 1, kAlone, 1}, {0.236, 0.236, 0.61}},
    {{128, 80, 7, 2, 1, kAlone, 1}, {0.274, 0.274, 0.93}},
    {{128, 96, 7, 2, 1, kAlone, 1}, {0.318, 0.318, 0.48}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.384, 0.384, 0.59}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.371, 0.371, 0.76}},
    {{128, 136, 5, 2, 1, kAlone, 1}, {0.408, 0.408, 0.78}},
    {{128, 144, 6, 2, 1, kAlone, 1}, {0.420, 0.420, 0.96}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.456, 0.456, 0.89}},
    {{128, 168, 4, 2, 1, kAlone, 1}, {0.482, 0.482, 1.30}},
    {{128, 176, 4, 2, 1, kAlone, 1}, {0.497, 0.497, 1.28}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.519, 0.519, 1.28}},
    {{128, 192, 5, 2, 1, kAlone, 1}, {0.535, 0.535, 1.18}},
    {{128, 192, 4, 2, 2, kShareB, 1}, {0.546, 0.546, 1.44}},
    {{128, 200, 4, 2, 1, kAlone, 1}, {0.535, 0.535, 1.53}},
    {{128, 208, 4, 2, 1, kAlone, 1}, {0.581, 0.581, 1.56}},
    {{128, 224, 4, 2, 1, kAlone, 1}, {0.620, 0.620, 1.70}},
    {{192, 64, 6, 3, 1, kAlone, 1}, {0.340, 0.340, 0.67}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.441, 0.441, 0.70}},
    {{192, 96, 5, 3, 2, kShareA, 1}, {0.463, 0.463, 0.91}},
    {{192, 128, 4, 3, 1, kAlone, 1}, {0.546, 0.546, 1.13}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.725, 0.725, 1.56}},
    {{256, 128, 4, 2, 2, kShareA, 1}, {0.749, 0.749, 1.73}},
});
// clang-format on

// For groups of rows, of 13 measured kernels: over 172 shapes (bench/results/sweep_grouped_h200.json) the best of these
// twelve takes 1.000 of the best of all. More of them do not help, as the host does not know how many rows a group has:
// what the planner takes needs 1.015 of the best, and of 78 calls of clients 1.012 (clients_kernels_h200.json).
// clang-format off
constexpr auto kGrouped = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.184, 0.184, 0.49, 0.50}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.312, 0.213, 0.37, 0.50}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.277, 0.277, 0.48, 0.50}},
    {{128, 96, 7, 2, 1, kAlone, 1}, {0.359, 0.359, 0.59, 0.84}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.420, 0.420, 0.67, 0.44}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.492, 0.492, 0.84, 0.49}},
    {{128, 176, 5, 2, 1, kAlone, 1}, {0.568, 0.568, 0.95, 0.50}},
    {{128, 192, 5, 2, 1, kAlone, 1}, {0.592, 0.592, 0.75, 0.43}},
    {{128, 200, 4, 2, 1, kAlone, 1}, {0.590, 0.590, 0.93, 0.25}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.507, 0.507, 0.75, 0.67}},
    {{192, 128, 4, 3, 1, kAlone, 1}, {0.653, 0.653, 0.83, 0.60}},
    {{256, 128, 4, 2, 2, kShareA, 1}, {0.768, 0.768, 1.41, 0.73}},
});
// clang-format on

// With scales for each row of B, which training takes, and MXFP8 that was re-encoded. 128x128 tiles, whose scales the
// tensor cores multiply, are best for most of 89 shapes (bench/results/sweep_1d1d_bf16_h200.json), wherever they do not
// end in a nearly empty wave; the last seven for up to 128 rows.
// clang-format off
constexpr auto kRowCandidates = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.346, 0.266, 0.35}},
    {{128, 64, 7, 2, 1, kAlone, 1}, {0.302, 0.302, 0.38}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.442, 0.442, 0.58}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.694, 0.694, 1.04}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.566, 0.566, 0.77}},
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.195, 0.178, 0.35}},
    {{64, 32, 14, 2, 1, kAlone, 1}, {0.156, 0.156, 0.65}},
    {{64, 32, 7, 1, 3, kSplitK, 2}, {0.173, 0.077, 3.25}},
    {{64, 32, 7, 1, 5, kSplitK, 2}, {0.168, 0.079, 2.77}},
    {{64, 32, 6, 1, 8, kSplitK, 2}, {0.165, 0.080, 2.82}},
    {{64, 64, 12, 2, 1, kAlone, 1}, {0.159, 0.159, 1.46}},
    {{128, 32, 8, 2, 4, kSplitK, 1}, {0.133, 0.133, 2.72}},
});
// clang-format on

// 1D1D with D in f32, which may be accumulated to: where K is short, loading the old D is best for that (loads_source),
// and a stage less leaves room. 136 columns fill waves that 128 do not: at 2112x4096x7168 four, which take 0.89 of
// five. What is chosen takes 1.005 of the best over 208 shapes (bench/results/sweep_1d1d_h200.json).
// clang-format off
constexpr auto kRowF32Candidates = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.315, 0.242, 0.84, 0, 1.04}},
    {{128, 64, 7, 2, 1, kAlone, 1}, {0.295, 0.295, 0.90, 0, 1.04}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.479, 0.479, 1.69, 0, 1.63}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.444, 0.444, 1.43}},
    {{128, 192, 4, 2, 1, kAlone, 1}, {0.719, 0.719, 2.37}},
    {{192, 96, 5, 3, 1, kAlone, 1}, {0.569, 0.569, 1.80}},
    {{128, 136, 5, 2, 1, kAlone, 1}, {0.493, 0.493, 1.68}},
});
// clang-format on

/// For groups of K, which have waves enough without the last one.
constexpr auto kKGroupedCandidates = [] {
    std::array<Candidate, kRowF32Candidates.size() - 1> list{};
    std::ranges::copy_n(kRowF32Candidates.begin(), list.size(), list.begin());
    return list;
}();

/// With D in bf16, as gradients that nothing is added to: the tile that is best in f32 where there is much to do, and
/// one for little and for bits that do not depend on the batch.
constexpr auto kKGroupedBf16Candidates = std::to_array<Candidate>({kRowCandidates[0], kRowCandidates[2]});

// Groups of rows with scales for each row of B. The tensor cores multiply the scales of all of them, so that the bits
// of a row do not depend on which is taken.
// clang-format off
constexpr auto kGroupedRowCandidates = std::to_array<Candidate>({
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.388, 0.388, 1.07, 0.50}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.496, 0.496, 1.43, 0.50}},
});
// clang-format on

// With an affine epilogue: one set of tiles of each height, and no parts of K, as few kernels serve many types of D.
// Blocks are taken to last as long as in the kernels of these tiles without it; tiles longer by the share of the bytes
// of C that the old D costs kernels in f32 that load it.
// clang-format off
constexpr auto kAffine = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.189, 0.162, 0.72}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.89}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.384, 0.384, 1.39}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.456, 0.456, 1.89}},
});
constexpr auto kAffineF16 = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.89}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.384, 0.384, 1.39}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.456, 0.456, 1.89}},
});
constexpr auto kAffineF32 = std::to_array<Candidate>({
    {{64, 32, 7, 1, 1, kAlone, 2}, {0.189, 0.162, 1.02}},
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.269, 0.233, 1.44}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.400, 0.400, 3.32}},
});
constexpr auto kAffineGrouped = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.317, 0.216, 0.91, 0.50}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.450, 0.450, 1.41, 0.48}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.515, 0.515, 1.84, 0.49}},
});
constexpr auto kAffineGroupedF16 = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.317, 0.216, 0.91, 0.50}},
    {{128, 160, 5, 2, 1, kAlone, 1}, {0.515, 0.515, 1.84, 0.49}},
});
constexpr auto kAffineGroupedF32 = std::to_array<Candidate>({
    {{64, 64, 5, 1, 1, kAlone, 2}, {0.317, 0.216, 1.44, 0.50}},
    {{128, 128, 4, 2, 1, kAlone, 1}, {0.450, 0.450, 3.32, 0.48}},
});
// clang-format on

// With a gap in each head of D, whose kernels store strips. Rates are taken from those of the kernels that store so;
// tiles of 128 rows to be longer by what strips cost groups of rows.
// clang-format off
constexpr auto kHeadGaps = std::to_array<Candidate>({
    {{64, 32, 8, 1, 1, kAlone, 2}, {0.189, 0.162, 0.52}},
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.253, 0.205, 0.39}},
    {{128, 128, 5, 2, 1, kAlone, 1}, {0.384, 0.384, 0.89}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.725, 0.725, 2.06}},
});
// clang-format on

// With D the SwiGLU of the product, quantised: a tile has the gates and the ups of 128 columns, or of 64 beside a
// neighbour with the other 64. Rates are what 65,536 and few rows of 7168 and 3584 take on an H200; the exponentials of
// one warpgroup run beside the other ones' products.
// clang-format off
constexpr auto kGated = std::to_array<Candidate>({
    {{64, 128, 4, 1, 2, kShareA, 2}, {0.660, 0.340, 2.50}},
    {{128, 256, 4, 2, 1, kAlone, 1}, {0.820, 0.820, 0.20}},
    {{192, 128, 4, 3, 2, kShareA, 1}, {0.575, 0.575, 1.50}},
});
constexpr auto kGatedRows = std::to_array<Candidate>({
    {{64, 128, 4, 1, 2, kShareA, 2}, {0.660, 0.300, 2.20}},
    {{64, 128, 8, 1, 2, kShareA, 1}, {0.300, 0.300, 2.50}},
    {{128, 256, 4, 2, 1, kAlone, 1}, {0.840, 0.840, 4.00, 0.20}},
    {{192, 128, 4, 3, 2, kShareA, 1}, {0.600, 0.600, 3.00, 0.30}},
});
// clang-format on

// With rows by their numbers: tiles for few and for many rows of a group. Rates in bf16 are what 512 to 32,768 rows of
// D by numbers take on an H200, those in f32 of the kernels of these tiles without it; rows of A that come one by one
// take longer where there are many (docs/epilogues.md).
// clang-format off
constexpr auto kIndexed = std::to_array<Candidate>({
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.277, 0.277, 0.68, 0.50}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.420, 0.420, 1.10, 0.44}},
});
constexpr auto kIndexedBf16 = std::to_array<Candidate>({
    {{64, 64, 6, 1, 1, kAlone, 2}, {0.312, 0.213, 0.42, 0.50}},
    {{64, 128, 8, 1, 1, kAlone, 1}, {0.277, 0.277, 0.68, 0.50}},
    {{128, 128, 6, 2, 1, kAlone, 1}, {0.435, 0.435, 1.90, 0.44}},
    {{192, 128, 4, 3, 1, kAlone, 1}, {0.600, 0.600, 1.23, 0.60}},
    {{256, 128, 4, 2, 1, kAlone, 1}, {0.800, 0.800, 2.00, 0.73}},
});
// clang-format on

constexpr Kind kPlainKind{}, kGroupedKind{.grouping = Grouping::Rows}, kRowKind{.b = kRowScaled},
    kGroupedRowKind{.grouping = Grouping::Rows, .b = kRowScaled}, kRowF32Kind{.b = kRowScaled, .output = Output::F32},
    kKGroupedKind{.grouping = Grouping::K, .b = kRowScaled, .output = Output::F32},
    kKGroupedBf16Kind{.grouping = Grouping::K, .b = kRowScaled};
constexpr auto kConfigs = configs_of(kCandidates, kPlainKind);
constexpr auto kGroupedConfigs = configs_of(kGrouped, kGroupedKind);
constexpr auto kGroupedRowConfigs = configs_of(kGroupedRowCandidates, kGroupedRowKind);
constexpr auto kRowConfigs = configs_of(kRowCandidates, kRowKind);
constexpr auto kRowF32Configs = configs_of(kRowF32Candidates, kRowF32Kind);
constexpr auto kKGroupedConfigs = configs_of(kKGroupedCandidates, kKGroupedKind);
constexpr auto kKGroupedBf16Configs = configs_of(kKGroupedBf16Candidates, kKGroupedBf16Kind);

/// What counts choices instead of kernels with taller tiles: they have no more than 64 rows, and of all kernels its
/// CTAs have the most bytes of B on their way before A is there.
constexpr GemmConfig kCountedTile = kGroupedConfigs[2];
static_assert(kCountedTile.tile_m == 64 && kCountedTile.tile_n == 128);

constexpr Kind indexed_kind(Output output) {
    return {.grouping = Grouping::Rows, .output = output, .finish = Finish::Indexed};
}

/// Scales of blocks of B, with an affine epilogue.
constexpr Kind affine_kind(Grouping grouping, Output output) {
    return {.grouping = grouping, .output = output, .finish = Finish::Affine};
}

constexpr CandidateList kListed[] = {{kPlainKind, kConfigs, kCandidates},
                                     {kGroupedKind, kGroupedConfigs, kGrouped},
                                     {kGroupedRowKind, kGroupedRowConfigs, kGroupedRowCandidates},
                                     {kRowKind, kRowConfigs, kRowCandidates},
                                     {kRowF32Kind, kRowF32Configs, kRowF32Candidates},
                                     {kKGroupedKind, kKGroupedConfigs, kKGroupedCandidates},
                                     {kKGroupedBf16Kind, kKGroupedBf16Configs, kKGroupedBf16Candidates},
                                     kListOf<kHeadGaps, {.finish = Finish::HeadGaps}>,
                                     kListOf<kGated, {.finish = Finish::Gated}>,
                                     kListOf<kGatedRows, {.grouping = Grouping::Rows, .finish = Finish::Gated}>,
                                     kListOf<kIndexedBf16, indexed_kind(Output::BF16)>,
                                     kListOf<kIndexed, indexed_kind(Output::F32)>,
                                     kListOf<kAffine, affine_kind(Grouping::None, Output::BF16)>,
                                     kListOf<kAffineF16, affine_kind(Grouping::None, Output::F16)>,
                                     kListOf<kAffineF32, affine_kind(Grouping::None, Output::F32)>,
                                     kListOf<kAffineGrouped, affine_kind(Grouping::Rows, Output::BF16)>,
                                     kListOf<kAffineGroupedF16, affine_kind(Grouping::Rows, Output::F16)>,
                                     kListOf<kAffineGroupedF32, affine_kind(Grouping::Rows, Output::F32)>};

/// The lists of all types.
const std::vector<CandidateList> kLists = [] {
    std::vector<CandidateList> all(std::begin(kListed), std::end(kListed));
    for (const auto& others :
         {unscaled_candidates(), finished_candidates(), rare_candidates(), integer_candidates(), mx_candidates()})
        std::ranges::copy(others, std::back_inserter(all));
    return all;
}();

const CandidateList* list_of(Kind kind) {
    for (const CandidateList& list : kLists)
        if (list.kind == kind) return &list;
    return nullptr;
}

}  // namespace

/// Affine kernels also write the product alone: with scales of blocks in types other than bf16, and of groups of rows
/// with an MN-major A. Those for sums write the sums of pieces, in f32.
Kind Problem::kind() const {
    const bool also_affine = (b.scaling == Scaling::Blocks && d.element != DType::BF16) ||
                             (groups.kind == Grouping::Rows && a.major == Major::MN);
    const Finish finish = d.finish == Finish::None && also_affine ? Finish::Affine : d.finish;
    const DType written = groups.kind == Grouping::Sum ? DType::F32 : d.element;
    return {groups.kind, a, b, find_type(written)->output.value(), finish};
}

std::span<const GemmConfig> candidates(Kind kind) {
    const CandidateList* list = list_of(kind);
    return list ? list->configs : std::span<const GemmConfig>();
}

GemmConfig for_row_scales(GemmConfig config) {
    // Where a k-block has the scales of 64 rows to copy, it takes no longer row-major (measured on an H200). Beside
    // tiles of more than 208 columns vectors have too few registers: 4% slower. Where each row of B has a scale,
    // vectors of both take longer than copies, but no longer where they go through registers anyway.
    // D in f16 is too rare for kernels of its own for that, and so are integers, MX scales and most finishes.
    if (config.tile_m <= 64 || config.b.scaling == Scaling::None || config.output == Output::F16) return config;
    const bool usual =
        config.finish == Finish::None || (config.finish == Finish::HeadGaps && kernel_plan(config).tma_store());
    if (!usual || config.a.element == Element::I8 || config.mx()) return config;
    const bool blocks = !config.row_b_scales() && config.tile_n <= 208;
    if (blocks || kernel_plan(config).tensor_core_scales()) config.scales = ScaleLayout::Rows;
    return config;
}

GemmConfig for_counted_choices(GemmConfig config) {
    if (kind_of(config) != kGroupedKind) return config;
    if (config.tile_m > kCountedTile.tile_m) config = kCountedTile;
    config.counts_choices = true;
    return config;
}

GemmConfig for_reported_rows(GemmConfig config) {
    config.reports_rows = kind_of(config) == kGroupedKind;
    return config;
}

std::vector<GemmConfig> kernels() {
    std::vector<GemmConfig> all;
    for (const CandidateList& list : kLists) {
        all.insert(all.end(), list.configs.begin(), list.configs.end());
        for (const GemmConfig& c : list.configs) {
            if (for_row_scales(c) != c) all.push_back(for_row_scales(c));
            if (c.tile_m <= kCountedTile.tile_m && for_counted_choices(c) != c) all.push_back(for_counted_choices(c));
            if (for_reported_rows(c) != c) all.push_back(for_reported_rows(c));
        }
    }
    return all;
}

const Rates& rates(const GemmConfig& config) {
    if (const CandidateList* list = list_of(kind_of(config)))
        if (const auto found = std::ranges::find(list->configs, config); found != list->configs.end())
            return list->candidates[static_cast<size_t>(found - list->configs.begin())].rates;
    throw Error(Errc::Internal, "no rates for a kernel that is not a candidate");
}

std::string_view name_of(ClusterUse use) {
    switch (use) {
        case ClusterUse::None: return "none";
        case ClusterUse::ShareA: return "shareA";
        case ClusterUse::ShareB: return "shareB";
        case ClusterUse::SplitK: return "splitK";
    }
    return "unknown";
}

/// A and B as BLAS says whether they are transposed, read from row-major A [M, K] and B [K, N]: N and N are "nn". ""
/// for "nt", the layout of kernels of every type.
static std::string_view layout_suffix(const GemmConfig& c) {
    if (c.a.major == Major::K) return c.b.major == Major::K ? "" : "_nn";
    return c.b.major == Major::K ? "_tt" : "_tn";
}

std::string name_of(const GemmConfig& c) {
    std::string name = fmt::format("m{}n{}s{}w{}", c.tile_m, c.tile_n, c.stages, c.math_warpgroups);
    if (c.cluster_use != ClusterUse::None) name += fmt::format("_{}{}", name_of(c.cluster_use), c.cluster);
    if (c.ctas_per_sm > 1) name += fmt::format("_x{}", c.ctas_per_sm);
    if (c.row_groups()) name += "_grouped";
    if (c.mx()) name += c.a.scaling == Scaling::Mx ? "_mx" : "_mxb";
    else if (c.row_b_scales()) name += "_1d1d";
    if (c.a.scaling == Scaling::None) name += fmt::format("_{}", type_of(c.a.element).name);
    if (c.a.element == Element::I8) name += "_i8";
    if (c.a.element != c.b.element) name += fmt::format("_{}_{}", type_of(c.a.element).name, type_of(c.b.element).name);
    name += layout_suffix(c);
    if (c.output != Output::BF16) name += fmt::format("_{}", type_of(c.output).name);
    if (c.finish != Finish::None) name += fmt::format("_{}", facts_of(c.finish).name);
    if (c.k_groups()) name += "_kgrouped";
    if (c.summed()) name += "_summed";
    if (c.scales == ScaleLayout::Rows) name += "_rows";
    if (c.counts_choices) name += "_choices";
    if (c.reports_rows) name += "_reports";
    return name;
}

GemmConfig config_named(std::string_view name) {
    for (const CandidateList& list : kLists)
        for (const GemmConfig& c : list.configs)
            if (name_of(c) == name) return c;
    throw Error(
        Errc::InvalidArgument,
        fmt::format("config: '{}' is not the name of a kernel; `finegemm explain M N K` lists the names", name));
}

}  // namespace finegemm::plan
