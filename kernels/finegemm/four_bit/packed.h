// Packed weights of 4 bits: where each lies, and which e4m3 it is. Layer four_bit.
// docs/four_bit.md has the picture. A block of 128 x 128 is contiguous: codes in the order of wgmma's fragments, then
// what belongs to its rows. Blocks of neighbours in K follow each other, then those of 128 rows. Behind all blocks of a
// matrix of MXFP4 are their scales.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

enum class FourBitCodes : uint32_t {
    Mxfp4 = 1,  // e2m1 with power-of-two scales of 32: shifts of exponents, and one scale in f32 for the block
    Int4 = 2,   // -8 to 7 with scales in bf16 for each row and 128
};

inline constexpr uint32_t kFourBitCodeBytes = kScaleBlock * kScaleBlock / 2;
/// For each row two bytes: those of rows r and r + 8 make a word.
inline constexpr uint32_t kFourBitRowBytes = kScaleBlock * 2;

/// Whole lines of 128 bytes, as matrices have.
inline constexpr uint32_t kFourBitBlockBytes = kFourBitCodeBytes + kFourBitRowBytes;
static_assert(kFourBitBlockBytes % 128 == 0);

/// Bytes of a matrix of so many blocks.
FG_HD constexpr uint64_t four_bit_matrix_bytes(FourBitCodes codes, uint64_t blocks) {
    const uint64_t scales = codes == FourBitCodes::Mxfp4 ? (blocks * 4 + 127) / 128 * 128 : 0;
    return blocks * kFourBitBlockBytes + scales;
}

/// A weight of a block: the byte at which its word begins, and where in the word three bits and the sign lie.
struct FourBitPlace {
    uint32_t word, magnitude, sign;
};
/// Words of 64 rows lie so that each thread of a warpgroup has sixteen bytes twice, for two steps of 32 of K each: the
/// word of its upper row, that of its lower one, of one step, then of the other. In a word the three bits of a weight
/// are a selector of prmt; signs lie where, in place or four bits up, they are those of four e4m3.
FG_HD constexpr FourBitPlace four_bit_place(uint32_t row, uint32_t k) {
    const uint32_t half = row / 64, warp = row % 64 / 16, lower = row % 16 / 8, step = k / 32, far = k % 32 / 16;
    const uint32_t thread = warp * 32 + row % 8 * 4 + k % 16 / 4, i = k % 4;
    const uint32_t piece = (half * 2 + step / 2) * 128 + thread;
    return {piece * 16 + (step % 2 * 2 + lower) * 4, far * 16 + i * 4, i * 8 + (far == 0 ? 7 : 3)};
}
/// The first byte of a row's two.
FG_HD constexpr uint32_t four_bit_row_place(uint32_t row) {
    return kFourBitCodeBytes + (row / 16 * 8 + row % 8) * 4 + row % 16 / 8 * 2;
}
// E4m3 of three bits, the first one's in the lowest byte. MXFP4: 0, 0.5, 1, 1.5, 2, 3, 4 and 6 times 2^-5, so that the
// smallest is normal; a shift adds to the exponents of all but zero, up to 6 * 2^6 = 384. INT4: 0 to 7, and -1 to -8.
inline constexpr uint32_t kMxfp4Low = 0x14100800, kMxfp4High = 0x24201c18;
inline constexpr uint32_t kMxfp4LowStep = 0x08080800, kMxfp4HighStep = 0x08080808;
inline constexpr uint32_t kInt4Low = 0x44403800, kInt4High = 0x4e4c4a48, kInt4NegativeLow = 0xc8c4c0b8,
                          kInt4NegativeHigh = 0xd0ceccca;
inline constexpr uint32_t kMostMxfp4Shift = 11;
inline constexpr int32_t kMxfp4Exponent = -5;  // of shift 0

/// The e4m3 that a kernel multiplies by. `magnitude`: three bits; `shift` of MXFP4 only.
FG_HD constexpr uint8_t four_bit_e4m3(FourBitCodes codes, uint32_t magnitude, bool negative, uint32_t shift) {
    const auto byte = [magnitude](uint32_t low, uint32_t high) {
        return (magnitude < 4 ? low : high) >> magnitude % 4 * 8 & 0xff;
    };
    if (codes == FourBitCodes::Int4)
        return static_cast<uint8_t>(negative ? byte(kInt4NegativeLow, kInt4NegativeHigh) : byte(kInt4Low, kInt4High));
    return static_cast<uint8_t>(byte(kMxfp4Low + shift * kMxfp4LowStep, kMxfp4High + shift * kMxfp4HighStep) |
                                (negative ? 0x80 : 0));
}

}  // namespace finegemm
