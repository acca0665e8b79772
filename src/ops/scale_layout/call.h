// A change of scales' layout as everything behind the public functions sees it. Layer engine.
#pragma once

#include <finegemm/scale_layout.h>
#include <finegemm/scale_layout/scale_layout.h>

namespace finegemm {

/// Scales, where they go, and groups. The options are borrowed.
struct ScaleLayoutCall {
    ConstStack sf;
    Stack out;
    ScaleGroups groups;
    const ScaleLayoutOptions& options;

    ScaleTransform transform() const {
        if (sf.matrix.dtype == out.matrix.dtype)
            return options.power_of_two_scales ? ScaleTransform::Round : ScaleTransform::Copy;
        return out.matrix.dtype == DType::UE8M0x4 ? ScaleTransform::Pack : ScaleTransform::Unpack;
    }
    /// Rows of `out` to one of `sf`, as a power of two.
    uint32_t row_shift() const { return sf.matrix.rows == out.matrix.rows ? 0 : 7; }
    ScaleRounding rounding() const { return options.power_of_two_scales ? ScaleRounding::up() : ScaleRounding(); }
    ScaleGrouper grouper() const {
        return {.numbers = groups.data,
                .groups = static_cast<uint32_t>(groups.size),
                .grouping = static_cast<ScaleGrouping>(groups.form),
                .alignment = Divider::by(static_cast<uint32_t>(groups.alignment)),
                .scale_k = Divider::by(static_cast<uint32_t>(groups.scale_k))};
    }
};
static_assert(1u << 7 == kScaleBlock);

}  // namespace finegemm
