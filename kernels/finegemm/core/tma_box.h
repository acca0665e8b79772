// What TMA moves at once: a box of a tensor map, and the rules that the hardware sets for it.
// Layer core. CUDA driver API, cuTensorMapEncodeTiled.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// Swizzle: how TMA permutes 16-byte chunks inside the rows that it writes to shared memory; the value is a row's width
/// in bytes. wgmma's descriptors follow the same rule. PTX ISA, "Tensor swizzling modes".
enum class Swizzle : uint32_t { None = 0, B32 = 32, B64 = 64, B128 = 128 };

/// Where the byte goes that would lie at `address` without a swizzle: chunks of 16 bytes change places by the number of
/// the 128 bytes that they lie in, as the bits of the address give it. PTX ISA, "Tensor swizzling modes".
FG_HD constexpr uint32_t swizzled(uint32_t address, Swizzle swizzle) {
    const uint32_t width = static_cast<uint32_t>(swizzle);
    return width == 0 ? address : address ^ (address >> 3 & (width - 1) & ~15u);
}

/// What becomes of lines of L2 that a load brings, as createpolicy.fractional encodes it for a fraction of one. PTX
/// ISA, createpolicy.
inline constexpr uint64_t kEvictNormal = 0x1000000000000000, kEvictFirst = 0x12f0000000000000,
                          kEvictLast = 0x14f0000000000000;

struct TmaBox {
    uint32_t rows = 0, cols = 0;  // cols: elements along the contiguous dimension
    uint32_t element_bytes = 1;
    Swizzle swizzle = Swizzle::None;
    uint32_t count = 1;  // of neighbours in a stack of matrices
    constexpr bool operator==(const TmaBox&) const = default;
};

/// Boxes have at most 256 rows and matrices, rows of a multiple of 16 bytes, and rows no wider than the swizzle.
FG_HD constexpr bool legal(const TmaBox& b) {
    const uint32_t row_bytes = b.cols * b.element_bytes;
    const uint32_t width = static_cast<uint32_t>(b.swizzle);
    return b.rows > 0 && b.rows <= 256 && b.cols > 0 && b.cols <= 256 && b.count > 0 && b.count <= 256 &&
           row_bytes % 16 == 0 && (width == 0 || row_bytes <= width);
}

}  // namespace finegemm
