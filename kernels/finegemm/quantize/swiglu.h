// SwiGLU with quantisation: configuration of its kernels, the rows that it does, and the launch's parameters.
// Layer quantize.
#pragma once

#include <finegemm/core/divide.h>
#include <finegemm/core/expert_bias.h>
#include <finegemm/core/group_layout.h>
#include <finegemm/quantize/activation.h>
#include <finegemm/quantize/quantize.h>

namespace finegemm {

/// Everything about the kernel that is fixed when it is compiled.
struct SwigluConfig {
    QuantizeInput input = QuantizeInput::BF16;  // or F32
    bool few = false;     // rows, of BF16: the next kernel's CTAs may begin when all of the grid have
    bool biased = false;  // BF16 of groups by offsets, each with a bias
    bool awaits = false;  // few rows of groups by offsets, which the kernel before this one reports (ReportParams)

    static constexpr uint32_t kCount = 5;  // kernels that there are
    /// Its place among them.
    FG_HD constexpr uint32_t index() const {
        return awaits ? 4 : biased ? 3 : few ? 2 : input == QuantizeInput::F32 ? 0 : 1;
    }
    constexpr bool operator==(const SwigluConfig&) const = default;

    FG_HD constexpr QuantizeConfig rows() const { return {input}; }
    FG_HD constexpr uint32_t threads() const { return 128; }
    /// So many must fit an SM: bounds registers. As many as spill nothing.
    FG_HD constexpr uint32_t ctas_per_sm() const { return biased ? 6 : 8; }

    // Some lanes do a unit: 1x128 blocks side by side in a row of q. They load whole lines of x, of gates and of ups,
    // and the more blocks there are, the less takes what is done once for all of them.
    static constexpr uint32_t kLanes = 8;
    FG_HD constexpr uint32_t unit_blocks() const { return input == QuantizeInput::F32 || biased ? 1 : 2; }
    FG_HD constexpr uint32_t unit_cols() const { return unit_blocks() * kScaleBlock; }
    FG_HD constexpr uint32_t cta_units() const { return threads() / kLanes; }
    FG_HD constexpr uint32_t vector() const { return rows().vector(); }
    /// Columns from a vector of a lane to its next.
    FG_HD constexpr uint32_t step() const { return kLanes * vector(); }
    FG_HD constexpr uint32_t block_vectors() const { return kScaleBlock / step(); }
    FG_HD constexpr uint32_t vectors() const { return unit_blocks() * block_vectors(); }
};

struct SwigluParams {
    const void* x;
    uint8_t* q;
    float* scales;
    const float* weights;                                                                   // null: all are 1
    int64_t x_row_stride, q_row_stride, scale_row_stride, scale_col_stride, weight_stride;  // elements
    int64_t x_stride, q_stride, scale_stride, weight_matrix_stride;  // from one matrix to the next
    uint32_t rows, cols;                                             // of a matrix of q; cols: a multiple of 16
    uint32_t matrices;
    Divider matrix_ctas;  // CTAs of each matrix
    Divider across;       // units of a row
    uint32_t interleaved, power_of_two;
    uint32_t whole;  // not interleaved, and cols are a multiple of those of a unit
    uint32_t plain;  // no limit, slope 1, no offset, no weights
    SwigluRule rule;
    GroupLayout groups;
    ExpertBias biases;       // of each group, added to what x has
    uint32_t early;          // where there is a bias: the next kernel's CTAs may begin when all of the grid have
    const uint32_t* stored;  // [groups], as ReportParams has it: what is awaited
};

/// The first group whose rows end behind a row, where they lie one behind the other.
FG_HD constexpr uint32_t group_behind(const GroupLayout& groups, uint32_t row) {
    uint32_t first = 0, end = groups.groups;
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (groups.ends[middle] > static_cast<int32_t>(row)) end = middle;
        else first = middle + 1;
    }
    return first;
}

/// Is the row one of a group? Numbers that break the rules give some answer.
FG_HD constexpr bool holds_row(const GroupLayout& groups, uint32_t matrix, uint32_t row) {
    if (groups.indices) return groups.is_group(groups.indices[row]);
    if (!groups.ends) return true;
    if (groups.stacked) return row < groups.span(matrix).end;
    if (groups.alignment == 1) {  // one behind the other: two reads say it, of which none waits for the other
        const int32_t begin = groups.first_is_given ? groups.ends[-1] : 0, end = groups.ends[groups.groups - 1];
        return static_cast<int32_t>(row) >= begin && static_cast<int32_t>(row) < end;
    }
    const uint32_t first = group_behind(groups, row);
    return first < groups.groups && row >= groups.span(first).begin;
}

}  // namespace finegemm
