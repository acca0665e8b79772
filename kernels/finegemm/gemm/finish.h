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
};

struct FinishFacts {
    const char* name;        // behind those of kernels, and of the field of a product that asks for it
    const char* enumerator;  // in sources
    bool loads_source;       // TMA loads what is added to where it will store D from
    bool moves_columns;  // those of a tile are not neighbours in D: each panel, or each piece of one, has a place of
                         // its own
    bool any_result;     // D may have each type that the product may, not only the usual one
};

inline constexpr uint32_t kFinishes = 3;
FG_HD constexpr FinishFacts facts_of(Finish finish) {
    constexpr FinishFacts kFacts[kFinishes] = {
        // in the order of the enumerators
        {"", "None", false, false, true},
        {"affine", "Affine", true, false, true},
        {"head_gaps", "HeadGaps", false, true, false},
    };
    return kFacts[static_cast<uint32_t>(finish)];
}

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

}  // namespace finegemm
