// The boxes of the two tensor maps of a GEMM, and the rules that the hardware sets for them.
// Layer core. CUDA driver API, cuTensorMapEncodeTiled.
#pragma once

#include <finegemm/core/schedule.h>
#include <finegemm/core/smem_plan.h>

namespace finegemm {

/// How TMA permutes 16-byte chunks inside the rows that it writes to shared memory; the value is a row's width in
/// bytes. wgmma's descriptors follow the same rule. PTX ISA, "Tensor swizzling modes".
enum class Swizzle : uint32_t { None = 0, B32 = 32, B64 = 64, B128 = 128 };

struct TmaBox {
    uint32_t rows = 0, cols = 0;      // cols: elements along the contiguous dimension
    uint32_t element_bytes = 1;
    Swizzle swizzle = Swizzle::None;
    constexpr bool operator==(const TmaBox&) const = default;
};

FG_HD constexpr TmaBox a_box(const GemmConfig& c, uint32_t m) {
    return {.rows = a_box_rows(c, m), .cols = GemmConfig::kTileK, .element_bytes = 1, .swizzle = Swizzle::B128};
}
FG_HD constexpr TmaBox b_box(const GemmConfig& c) {
    return {.rows = b_box_rows(c), .cols = GemmConfig::kTileK, .element_bytes = 1, .swizzle = Swizzle::B128};
}
/// Boxes have at most 256 rows, rows of a multiple of 16 bytes, and rows no wider than the swizzle.
FG_HD constexpr bool legal(const TmaBox& b) {
    const uint32_t row_bytes = b.cols * b.element_bytes;
    const uint32_t width = static_cast<uint32_t>(b.swizzle);
    return b.rows > 0 && b.rows <= 256 && b.cols > 0 && b.cols <= 256 && row_bytes % 16 == 0 &&
           (width == 0 || row_bytes <= width);
}

}  // namespace finegemm
