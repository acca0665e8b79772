// From weights of 4 bits to the registers of wgmma's A. Layer device.
#pragma once

#include <finegemm/four_bit/packed.h>
#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::device {

/// Two e4m3 words of a word of packed weights: of four neighbours, and of those 16 of K further on.
struct FourBitPair {
    uint32_t near, far;
};

/// MXFP4: tables of all magnitudes, for the shift that 32 weights of a row share.
__device__ inline FourBitPair decode_mxfp4(uint32_t packed, uint32_t shift) {
    const uint32_t low = kMxfp4Low + shift * kMxfp4LowStep, high = kMxfp4High + shift * kMxfp4HighStep;
    const uint32_t selectors = packed & 0x77777777u;
    return {ptx::permute_bytes(low, high, selectors) | (packed & 0x80808080u),
            ptx::permute_bytes(low, high, selectors >> 16) | (packed << 4 & 0x80808080u)};
}

/// INT4: of two tables the one that the sign chooses.
__device__ inline uint32_t decode_int4(uint32_t selectors, uint32_t signs) {
    const uint32_t chosen = ptx::spread_signs(signs);
    return (ptx::permute_bytes(kInt4NegativeLow, kInt4NegativeHigh, selectors) & chosen) |
           (ptx::permute_bytes(kInt4Low, kInt4High, selectors) & ~chosen);
}
__device__ inline FourBitPair decode_int4(uint32_t packed) {
    const uint32_t selectors = packed & 0x77777777u;
    return {decode_int4(selectors, packed), decode_int4(selectors >> 16, packed << 4)};
}

/// Half a k-block of a warpgroup's 64 rows of B at `codes`, as wgmma's A: four registers for each 32 of K, of the
/// thread's upper and lower rows in turn. `rows`: shifts of MXFP4, in four bits each for each 32 of K of all of the
/// block, of the upper row first.
template <FourBitCodes Codes, uint32_t Half>
__device__ inline void decode_half(uint32_t (&a)[8], ptx::SmemAddr codes, uint32_t rows) {
    const ptx::Words4 words = ptx::load_shared_words_x4(codes + Half * 128 * 16);
    const uint32_t even = rows & 0x0f0f0f0fu, odd = rows >> 4 & 0x0f0f0f0fu;  // shifts of steps, a byte each
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t step = i / 2, lower = i % 2;
        const uint32_t shift = ptx::permute_bytes(step == 0 ? even : odd, 0, 0x4440 + lower * 2 + Half);
        const FourBitPair pair =
            Codes == FourBitCodes::Mxfp4 ? decode_mxfp4(words.w[i], shift) : decode_int4(words.w[i]);
        a[step * 4 + lower] = pair.near;
        a[step * 4 + 2 + lower] = pair.far;
    }
}

}  // namespace finegemm::device
