// The XOR swizzle that TMA applies to shared memory, and that wgmma and stmatrix must follow.
// Layer core. PTX ISA, "Tensor swizzling modes": 16-byte chunks are permuted inside 32-, 64- or 128-byte rows.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// The value is the width of the swizzled row in bytes.
enum class Swizzle : uint32_t { None = 0, B32 = 32, B64 = 64, B128 = 128 };

/// Byte offset after swizzling; `offset` counts from an address aligned to the swizzle atom (1024 bytes suffice).
FG_HD constexpr uint32_t swizzled(Swizzle mode, uint32_t offset) {
    const uint32_t chunks = static_cast<uint32_t>(mode) / 16;
    const uint32_t mask = chunks == 0 ? 0 : chunks - 1;
    return offset ^ (((offset >> 7) & mask) << 4);
}

/// The swizzle of a box whose rows have this many bytes; rows that are no power of two stay plain.
FG_HD constexpr Swizzle swizzle_for(uint32_t row_bytes) {
    return row_bytes == 128  ? Swizzle::B128
           : row_bytes == 64 ? Swizzle::B64
           : row_bytes == 32 ? Swizzle::B32
                             : Swizzle::None;
}

}  // namespace finegemm
