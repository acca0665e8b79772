// Routing of tokens to experts: where each choice of a token has its row, and the configurations, shared memory and
// parameters of the kernels that find, fill and add up these rows. Layer routing.
#pragma once

#include <finegemm/core/coming_bytes.h>
#include <finegemm/core/counted_choices.h>
#include <finegemm/core/divide.h>
#include <finegemm/core/expert_bias.h>

namespace finegemm {

inline constexpr uint32_t kMostExperts = 1024, kMostChoices = 16;  // choices: of a token
inline constexpr int32_t kNoRow = -1;

/// What the numbers of groups mean, as GroupForm has it.
enum class RouteForm : uint32_t { Offsets, Indices, PrefixSums, Masked };

/// The rows of an expert. Those from `end` up to `next`, where the next expert begins, are padding.
struct ExpertRows {
    uint32_t begin, end, next;
};

struct RoutePlaces {
    uint32_t experts = 1, rows = 0;  // rows: that there are, Masked: for each expert
    uint32_t alignment = 1;          // a power of two
    RouteForm form = RouteForm::Offsets;

    FG_HD constexpr bool masked() const { return form == RouteForm::Masked; }
    /// Its place among local experts; `experts` for an id that is none of these.
    FG_HD constexpr uint32_t expert(int64_t id, int64_t first) const {
        const uint64_t local = static_cast<uint64_t>(id) - static_cast<uint64_t>(first);
        return local < experts ? static_cast<uint32_t>(local) : experts;
    }
    /// Rows that an expert of so many choices takes before the next one begins.
    FG_HD constexpr uint32_t taken(uint32_t choices) const { return (choices + alignment - 1) & ~(alignment - 1); }
    /// Where those of expert `e` are, as far as there are rows. `before`: taken by the experts before it.
    FG_HD constexpr ExpertRows of(uint32_t e, uint32_t before, uint32_t choices) const {
        if (masked()) return {e * rows, e * rows + min(choices, rows), (e + 1) * rows};
        return {min(before, rows), min(before + choices, rows), min(before + taken(choices), rows)};
    }
    /// The row behind all that choices of expert `e` may have.
    FG_HD constexpr uint32_t limit(uint32_t e) const { return masked() ? (e + 1) * rows : rows; }
};

/// Warps of a CTA: each thread has an expert.
inline constexpr uint32_t kRouteWarps = kMostExperts / kWarpSize;
inline constexpr uint32_t kMostRouteCtas = 8;

struct RouteShared {
    uint32_t counts[kRouteWarps][kMostExperts];        // of the warp's choices; then its next one's row
    uint32_t ends[kMostExperts], nexts[kMostExperts];  // as of ExpertRows
    uint32_t sums[kRouteWarps];
};
/// What a CTA of a cluster has.
struct RouteClusterShared : RouteShared {
    uint32_t totals[kMostRouteCtas][kMostExperts];  // of the choices of each CTA, which writes them here
    alignas(8) uint64_t told;                       // an mbarrier: they are all there
};

/// Choices from the first up to the one behind the last.
struct ChoiceRange {
    uint32_t begin, end;
};

/// Everything about a kernel of routing that is fixed when it is compiled.
struct RouteConfig {
    uint32_t ctas = 1;  // of the cluster that all of the grid is

    static constexpr uint32_t kCount = 2;  // kernels that there are
    static constexpr uint32_t kMostCtas = kMostRouteCtas;
    FG_HD constexpr uint32_t index() const { return ctas > 1 ? 1 : 0; }
    FG_HD constexpr uint32_t cluster() const { return ctas; }
    FG_HD static constexpr uint32_t threads() { return kMostExperts; }
    FG_HD static constexpr uint32_t warps() { return kRouteWarps; }
    FG_HD constexpr uint32_t smem_bytes() const { return ctas > 1 ? sizeof(RouteClusterShared) : sizeof(RouteShared); }
    /// Each warp has neighbouring choices, whole rounds of its lanes.
    FG_HD constexpr ChoiceRange choices(uint32_t all, uint32_t warp_of_grid) const {
        const uint32_t each = align_up(ceil_div(all, ctas * warps()), kWarpSize);
        return {min(warp_of_grid * each, all), min((warp_of_grid + 1) * each, all)};
    }
};

struct RouteParams {
    const uint8_t* ids;    // [tokens, k]
    int32_t* inverse;      // [tokens, k]
    int32_t* permutation;  // [rows], Masked [experts, rows]; null: not wanted
    int32_t* numbers;      // of groups
    uint32_t* stored;      // [experts], of a product (ReportParams), become zeros; null: nobody counts
    int64_t ids_row_stride, inverse_row_stride;
    int64_t first;  // id of the first expert
    uint32_t choices;
    uint32_t wide;  // ids have 64 bits
    Divider by_k;
    RoutePlaces places;
};

/// Rows of experts, in one matrix or in a stack of them.
struct RowStack {
    uint32_t rows = 0;  // of all matrices
    Divider by_height;  // rows of a matrix
    int64_t row_stride = 0, stride = 0;

    FG_HD constexpr bool has(int32_t row) const { return static_cast<uint32_t>(row) < rows; }
    FG_HD constexpr int64_t offset(uint32_t row) const {
        const uint32_t matrix = by_height.quotient(row);
        return matrix * stride + (row - matrix * by_height.divisor) * row_stride;
    }
};

/// Where the rows of a token's choices are.
struct ChosenRows {
    const int32_t* inverse;  // [tokens, k]
    int64_t row_stride;
    uint32_t tokens, k;
};

/// So few choices that each CTA finds all of their rows by itself, which saves a launch.
inline constexpr uint32_t kFewChoices = 256;

struct FewShared {
    uint32_t experts[kFewChoices], rows[kFewChoices];  // of each choice
};

/// A kernel that copies rows, or quantises them on the way.
struct PermuteConfig {
    bool quantizes = true;
    bool routes = false;  // it quantises, and finds the rows of few choices: by offsets, without permutation

    static constexpr uint32_t kCount = 3;
    FG_HD constexpr uint32_t index() const { return routes ? 2 : quantizes ? 1 : 0; }
    FG_HD constexpr uint32_t smem_bytes() const { return routes ? sizeof(FewShared) : 0; }
    FG_HD static constexpr uint32_t threads() { return 128; }
    FG_HD static constexpr uint32_t warps() { return threads() / kWarpSize; }
    FG_HD static constexpr uint32_t ctas_per_sm() { return 10; }
    /// What a warp takes of a row of x at once.
    FG_HD static constexpr uint32_t chunk_bytes() { return 2048; }
};

struct PermuteParams {
    const uint8_t* x;
    uint8_t* q;
    const float* x_scales;  // null: x has none, or is quantised
    float* scales;
    ChosenRows chosen;
    RowStack q_rows, scale_rows;  // q: in bytes
    int64_t x_row_stride;         // bytes
    int64_t x_scale_row_stride, x_scale_col_stride, scale_col_stride;
    uint32_t row_bytes;     // of x, a multiple of 16
    uint32_t scale_blocks;  // of a row
    uint32_t power_of_two;
    Divider by_parts;      // of a token: chunks of its row, with `routes` for each choice
    uint32_t tasks;        // parts of all tokens
    const float* weights;  // [tokens, k], which go to the rows of their choices
    int64_t weight_row_stride;
    float* weights_of_rows;  // [rows], or null
    uint8_t* sums;           // [tokens, columns of x] bf16, of which those of tokens without rows become zero; or null
    int64_t sum_row_stride;  // bytes
    ComingBytes coming;
    RouteParams route;
};

struct CombineConfig {
    bool routes = false;  // it finds rows by itself before they are there, of choices that are counted
    bool biased = false;  // it adds the biases of experts, and is told by CombineParams whether choices are counted

    static constexpr uint32_t kCount = 3;
    FG_HD constexpr uint32_t index() const { return biased ? 2 : routes ? 1 : 0; }
    FG_HD constexpr uint32_t smem_bytes() const { return routes || biased ? sizeof(FewShared) : 0; }
    FG_HD static constexpr uint32_t threads() { return 128; }
    FG_HD static constexpr uint32_t warps() { return threads() / kWarpSize; }
    FG_HD constexpr uint32_t ctas_per_sm() const { return biased ? 5 : 6; }
    FG_HD constexpr uint32_t vectors() const { return biased ? 1 : 2; }  // of 16 bytes that a lane adds up
    FG_HD static constexpr uint32_t at_once() { return 4; }              // choices whose rows are loaded together
    FG_HD constexpr uint32_t chunk_bytes() const { return vectors() * kWarpSize * 16; }
};

struct CombineParams {
    const uint8_t* y;
    const float* weights;  // [tokens, k]; null: ones
    uint8_t* out;
    ChosenRows chosen;
    RowStack y_rows;  // in bytes
    int64_t weight_row_stride;
    int64_t out_row_stride;  // bytes
    uint32_t row_bytes;      // a multiple of 16
    Divider by_parts;        // of a token: chunks of its row
    uint32_t tasks;
    RouteParams route;          // of choices that are counted, or to experts with a bias
    ExpertBias biases;          // added to rows of y
    const float* bias_weights;  // [tokens, k], of rows whose weight is part of y; null: ones
    int64_t bias_weight_row_stride;
    uint32_t counts;  // where there is a bias
};

}  // namespace finegemm
