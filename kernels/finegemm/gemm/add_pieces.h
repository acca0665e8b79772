// The kernel that adds up the pieces of a sum over stacks. Layer gemm.
#pragma once

#include <finegemm/gemm/config.h>

namespace finegemm {

/// What is fixed when the kernel is compiled.
struct AddPiecesConfig {
    Output output = Output::F32;

    static constexpr uint32_t kCount = 3;
    FG_HD constexpr uint32_t index() const { return static_cast<uint32_t>(output); }
    FG_HD constexpr uint32_t threads() const { return 128; }
    constexpr bool operator==(const AddPiecesConfig&) const = default;
};

struct AddPiecesParams {
    const float* sums;     // [pieces, m, n] without gaps
    void* d;               // [m, n]
    int64_t d_row_stride;  // elements
    uint32_t m, n, pieces;
    uint32_t accumulate;  // 1: D, of f32, is added to
};

}  // namespace finegemm
