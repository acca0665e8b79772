// SwiGLU with quantisation as everything behind the public functions sees it. Layer engine.
#pragma once

#include <finegemm/quantize/swiglu.h>
#include <finegemm/swiglu.h>

namespace finegemm {

/// The options are borrowed.
struct SwigluCall : SwigluArgs {
    const SwigluOptions& options;
    bool few = false;                  // rows, of BF16, before a kernel that has much to do before it needs them
    const uint32_t* stored = nullptr;  // as of ReportParams, of few rows: groups of x are awaited one by one
    ConstMatrix biases{};              // [E, columns of x], of groups by offsets: is added to x, of BF16

    bool stacked() const { return groups.form == GroupForm::Masked || groups.form == GroupForm::Whole; }
    bool has_weights() const { return weights.data != nullptr; }
    bool has_bias() const { return biases.data != nullptr; }

    bool is_plain() const {
        return options.gate_limit == 0 && options.gate_alpha == 1 && options.up_offset == 0 && !has_weights();
    }

    SwigluRule rule() const {
        SwigluRule rule{.slope = options.gate_alpha, .offset = options.up_offset, .to_bf16 = options.to_bf16};
        if (options.gate_limit > 0) rule.limit = options.gate_limit;
        return rule;
    }
    /// How many groups indices tell apart does not matter here.
    GroupLayout layout() const {
        const bool indices = groups.form == GroupForm::Indices, offsets = groups.form == GroupForm::Offsets;
        const bool ends = !indices && groups.form != GroupForm::Whole;
        return {.ends = ends ? groups.data + (offsets ? 1 : 0) : nullptr,
                .indices = indices ? groups.data : nullptr,
                .groups = indices ? uint32_t{INT32_MAX} + 1 : static_cast<uint32_t>(groups.size - (offsets ? 1 : 0)),
                .rows = static_cast<uint32_t>(x.matrix.rows),
                .alignment = groups.form == GroupForm::PrefixSums ? static_cast<uint32_t>(groups.alignment) : 1,
                .first_is_given = offsets,
                .stacked = stacked()};
    }
};

}  // namespace finegemm
