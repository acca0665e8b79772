// Finish: what becomes of a product before it is stored as D. Layer gemm.
// Names of kernels, their sources, the planner's kinds and the fields of a product read the facts here.
#pragma once

#include <finegemm/core/tensor_map.h>
#include <finegemm/gemm/d_columns.h>

namespace finegemm {

enum class Finish : uint32_t {
    None,      ///< D is the product, or the product is added to it
    Affine,    ///< D = alpha * the product + beta * C + bias (AffineParams), rounded once
    HeadGaps,  ///< D is the product in heads, with a gap in each that is not written (DColumns)
    Gated,     ///< D is the SwiGLU of the halves of the product's columns, quantised (GatedParams)
    Indexed,   ///< rows of A and of D are found by numbers, and each may have a factor (IndexedParams)
};

struct FinishFacts {
    const char* name;        // behind those of kernels, and of the field of a product that asks for it
    const char* enumerator;  // in sources
    bool loads_source;       // TMA loads what is added to where it will store D from
    bool moves_columns;  // those of a tile are not neighbours in D: each panel, or each piece of one, has a place of
                         // its own
    bool any_result;     // D may have each type that the product may, not only the usual one
};

inline constexpr uint32_t kFinishes = 5;
FG_HD constexpr FinishFacts facts_of(Finish finish) {
    constexpr FinishFacts kFacts[kFinishes] = {
        // in the order of the enumerators
        {"", "None", false, false, true},
        {"affine", "Affine", true, false, true},
        {"head_gaps", "HeadGaps", false, true, false},
        {"gated", "Gated", false, false, false},
        {"indexed", "Indexed", false, false, true},
    };
    return kFacts[static_cast<uint32_t>(finish)];
}

/// Each column of D, in e4m3 with scales, is made of two: of one in either half of the product. Not in the table, whose
/// rows the kernels' compiler looks up too late for what is in every loop.
FG_HD constexpr bool pairs_columns(Finish finish) { return finish == Finish::Gated; }

/// Rows of A and of D lie where numbers say.
FG_HD constexpr bool finds_rows(Finish finish) { return finish == Finish::Indexed; }

/// Widths of panels, by which TMA stores D and loads what is like it (panel_width in store_layout.h).
inline constexpr uint32_t kPanelWidths = 3;

/// What a kernel takes beside the parameters of its grouping: where columns lie in D, unless a finish says more.
template <Finish F>
struct FinishParamsOf {
    using Type = DColumns;
};

/// What an affine kernel adds to the product, and by what it multiplies it.
struct alignas(64) AffineParams {
    TensorMap c[kPanelWidths];  // as SegmentedParams::d; unused without C
    const float* bias;          // of each column of D, or null
    float alpha, beta;
    uint32_t adds_c;  // 0: there is no C, and beta says nothing
};
template <>
struct FinishParamsOf<Finish::Affine> {
    using Type = AffineParams;
};

/// What a kernel takes that makes D the quantised SwiGLU of the product (quantize/activation.h).
struct GatedParams {
    float* scales;                                             // of D, of 128 columns each
    int64_t scale_row_stride, scale_col_stride, scale_stride;  // elements; the last one from one group's to the next
    const float* weights;                                      // of each row, or null
    int64_t weight_row_stride, weight_stride;
    float limit, slope, offset;
    uint32_t bf16_between;  // 1: the product and what is quantised are rounded to bf16
    uint32_t power_of_two;  // 1: scales are
};
template <>
struct FinishParamsOf<Finish::Gated> {
    using Type = GatedParams;
};

/// Where the rows of a kernel for groups of rows lie. A number that is no row of A stands for a row of zeros, one that
/// is no row of D for one that is not stored.
struct IndexedParams {
    const uint8_t* a;  // codes, for rows that are found by numbers
    int64_t a_row_stride;
    const int32_t* numbers_of_a;     // [rows], or null: each row is that of its own number
    const int32_t* numbers_of_d;     // likewise, of D
    const uint64_t* addresses_of_d;  // [rows], of rows of D in the memory of any GPU, 0 for none; or null
    uint32_t a_count, d_count;       // rows that there are
    uint32_t k;
    const float* factors;  // of each row, or null
    int64_t factor_stride;
    uint32_t sums;  // 1: rows become what combine makes of them, where a token has one choice: a row as it would be
                    // stored, times its factor, added to zero
};
template <>
struct FinishParamsOf<Finish::Indexed> {
    using Type = IndexedParams;
};

}  // namespace finegemm
