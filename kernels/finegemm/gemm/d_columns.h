// DColumns: where the columns of a product lie in D. Layer gemm.
#pragma once

#include <finegemm/core/divide.h>

namespace finegemm {

/// Side by side; or in heads, with a gap in each, behind which its last `right` columns lie. Those that end one head
/// and those that begin the next one are neighbours.
struct DColumns {
    Divider head{};  // columns of the product that a head has
    uint32_t right = 0, gap = 0;

    /// Column of D. With `right` added, `col` is below 2^31.
    FG_HD constexpr uint32_t of(uint32_t col) const { return col + head.quotient(col + right) * gap; }
};

}  // namespace finegemm
