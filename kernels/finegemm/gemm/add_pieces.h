// The kernel that adds up the pieces of a sum over stacks. Layer gemm.
#pragma once

#include <finegemm/core/divide.h>
#include <finegemm/gemm/config.h>

namespace finegemm {

/// What is fixed when the kernel is compiled.
struct AddPiecesConfig {
    Output output = Output::F32;

    static constexpr uint32_t kCount = 3;
    FG_HD constexpr uint32_t index() const { return static_cast<uint32_t>(output); }
    /// Few: neither a row of D nor an SM is to be left with much less than others.
    FG_HD constexpr uint32_t threads() const { return 32; }
    /// Columns of D that a thread adds, side by side.
    FG_HD static constexpr uint32_t columns() { return 4; }
    /// CTAs for the columns of a row.
    FG_HD constexpr uint32_t ctas_of_row(uint32_t n) const { return ceil_div(n, threads() * columns()); }
    constexpr bool operator==(const AddPiecesConfig&) const = default;
};

struct AddPiecesParams {
    const float* sums;     // [pieces, m, n] without gaps
    void* d;               // [m, n]
    int64_t d_row_stride;  // elements
    uint32_t m, n, pieces;
    uint32_t accumulate;  // 1: D, of f32, is added to
    Divider ctas_of_row;
};

}  // namespace finegemm
