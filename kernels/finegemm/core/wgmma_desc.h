// The 64-bit shared-memory matrix descriptor of wgmma.
// Layer core. PTX ISA, "Asynchronous warpgroup level matrix shared memory layout: matrix descriptor".
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// K-major operand in 128-byte rows with the 128-byte swizzle: eight rows (1024 bytes) repeat along M or N.
/// `address` is a shared-memory byte address; the atom must start at a multiple of 1024, K steps add to the address.
FG_HD constexpr uint64_t wgmma_descriptor(uint32_t address) {
    constexpr uint64_t kLeadingBytes = 16;  // ignored for swizzled K-major operands
    constexpr uint64_t kStrideBytes = 8 * 128;
    constexpr uint64_t kSwizzle128 = 1;
    return (static_cast<uint64_t>(address & 0x3ffff) >> 4) | (kLeadingBytes >> 4) << 16 | (kStrideBytes >> 4) << 32 |
           kSwizzle128 << 62;
}

/// Likewise in rows of 64 or 32 bytes with the swizzle of that width, where the atom has eight rows of that width.
FG_HD constexpr uint64_t wgmma_descriptor_of_rows(uint32_t address, uint32_t row_bytes) {
    const uint64_t stride_bytes = 8 * row_bytes, swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    return (static_cast<uint64_t>(address & 0x3ffff) >> 4) | 1ull << 16 | (stride_bytes >> 4) << 32 | swizzle << 62;
}

/// K-major operand in rows of sixteen bytes, one behind the other and not swizzled: eight rows repeat along M or N.
/// What follows along K lies `leading` bytes behind.
FG_HD constexpr uint64_t wgmma_descriptor_of_short_rows(uint32_t address, uint32_t leading) {
    constexpr uint64_t kStrideBytes = 8 * 16;
    return (static_cast<uint64_t>(address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
           (kStrideBytes >> 4) << 32;
}

/// MN-major operand of two-byte elements in 128-byte rows, one for each of K, with the 128-byte swizzle: eight rows
/// (1024 bytes) repeat along K, and what follows along M or N lies `leading` bytes behind. Its upper half is that of a
/// K-major operand.
FG_HD constexpr uint32_t wgmma_mn_descriptor_low(uint32_t address, uint32_t leading) {
    return (address & 0x3ffff) >> 4 | leading >> 4 << 16;
}

/// What a descriptor counts, 16 bytes each, from 16 of K of two-byte elements to the next 16.
FG_HD constexpr uint32_t wgmma_k16_step(bool mn_major) { return mn_major ? 16 * 128 / 16 : 16 * 2 / 16; }

/// The half of a descriptor that depends on the address, and the descriptor that has it.
FG_HD constexpr uint32_t wgmma_descriptor_low(uint32_t address) {
    return static_cast<uint32_t>(wgmma_descriptor(address));
}
FG_HD constexpr uint64_t wgmma_descriptor_with(uint32_t low) { return wgmma_descriptor(0) >> 32 << 32 | low; }
FG_HD constexpr uint32_t wgmma_short_rows_low(uint32_t address, uint32_t leading) {
    return static_cast<uint32_t>(wgmma_descriptor_of_short_rows(address, leading));
}
FG_HD constexpr uint64_t wgmma_short_rows_with(uint32_t low) {
    return wgmma_descriptor_of_short_rows(0, 0) >> 32 << 32 | low;
}

}  // namespace finegemm
