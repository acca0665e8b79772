// Packing weights of 4 bits, and the FP8 that they are. Layer engine.
#include "ops/four_bit/cpu_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include <finegemm/core/fp8.h>

#include "engine/any_address.h"
#include "plan/reject.h"

namespace finegemm {

namespace {

constexpr int64_t kBlock = kScaleBlock, kGroup = 32;
constexpr int32_t kLargestExponent = 127;  // of a scale in f32
constexpr uint32_t kBias = 127;

/// Four weights of a row, neighbours in K, the first one's bits lowest, as kernels read them: of INT4 a sign and the
/// value, or of negative ones what is added to get -1.
uint32_t four_of(const FourBitSource& s, int64_t row, int64_t k) {
    if (row >= s.codes.rows || k >= s.codes.cols * 2) return 0;
    const int64_t at = row * s.codes.row_stride + k / 2;
    const uint32_t first = load<uint8_t>(s.codes.data, at), second = load<uint8_t>(s.codes.data, at + 1);
    uint32_t four = first | second << 8;
    if (s.high_first) four = (four & 0x0f0fu) << 4 | (four >> 4 & 0x0f0fu);
    if (s.format == FourBitFormat::Mxfp4) return four;
    if (s.offset) four ^= 0x8888u;
    return four ^ (four >> 3 & 0x1111u) * 7;
}

/// Signs of four weights at every eighth bit from the fourth on, and their magnitudes.
uint32_t signs_of(uint32_t four) {
    return (four & 8) | (four & 0x80) << 4 | (four & 0x800) << 8 | (four & 0x8000) << 12;
}
uint32_t word_of(uint32_t near, uint32_t far) {
    return (near & 0x7777u) | (far & 0x7777u) << 16 | signs_of(near) << 4 | signs_of(far);
}

/// A block of 128 x 128 of a source, of which parts may not exist.
struct SourceBlock {
    const FourBitSource& s;
    int64_t row, col;  // the first ones

    void put_codes(uint8_t* to) const {
        for (uint32_t r = 0; r < kBlock; ++r)
            for (uint32_t k = 0; k < kBlock; k += k % 16 == 12 ? 20 : 4)
                store(to + four_bit_place(r, k).word, 0,
                      word_of(four_of(s, row + r, col + k), four_of(s, row + r, col + k + 16)));
    }
    /// The biased exponent of a group that has weights besides zero.
    std::optional<uint32_t> exponent(int64_t r, int64_t group) const {
        if (row + r >= s.codes.rows || col + group * kGroup >= s.codes.cols * 2) return {};
        const int64_t scale = (row + r) * s.scales.row_stride + (col / kGroup + group) * s.scales.col_stride;
        const uint32_t exponent = load<uint8_t>(s.scales.data, scale);
        if (exponent == 255)
            reject("exponents", "is NaN (255) at [{}, {}], must be from 0 to 254; mend the checkpoint", row + r,
                   col / kGroup + group);
        for (int64_t k = 0; k < kGroup; k += 4)
            if (four_of(s, row + r, col + group * kGroup + k) & 0x7777u) return exponent;
        return {};
    }
    /// Shifts of all rows; returns the scale.
    float put_shifts(uint8_t* to) const {
        uint32_t least = 255, most = 0;
        for (int64_t r = 0; r < kBlock; ++r)
            for (int64_t group = 0; group < kBlock / kGroup; ++group)
                if (const auto e = exponent(r, group)) least = std::min(least, *e), most = std::max(most, *e);
        if (most < least) least = most = kBias;
        if (most - least > kMostMxfp4Shift)
            reject("exponents",
                   "range from {} to {} in the block of 128 x 128 at [{}, {}], where they may differ by {}; keep "
                   "this matrix in another type",
                   least, most, row, col, kMostMxfp4Shift);
        // The scale of shift 0, which is to be finite, too.
        const uint32_t base = std::min<uint32_t>(least, kLargestExponent + kBias + kMxfp4Exponent);
        for (uint32_t r = 0; r < kBlock; ++r) {
            uint32_t shifts = 0;
            for (uint32_t group = 0; group < kBlock / kGroup; ++group)
                if (const auto e = exponent(r, group)) shifts |= (*e - base) << group * 4;
            store(to + four_bit_row_place(r), 0, static_cast<uint16_t>(shifts));
        }
        const auto exponent_of_scale = static_cast<int>(base) - static_cast<int>(kBias) - kMxfp4Exponent;
        return std::ldexp(1.0f, exponent_of_scale);
    }
    void put_row_scales(uint8_t* to) const {
        for (uint32_t r = 0; r < kBlock && row + r < s.codes.rows; ++r) {
            const int64_t at = (row + r) * s.scales.row_stride + col / kBlock * s.scales.col_stride;
            const auto scale = load<uint16_t>(s.scales.data, at);
            const float value = float_of_bf16(scale);
            if (!std::isfinite(value) || value < 0)
                reject("scales", "is {} at [{}, {}], must be finite and not negative; mend the checkpoint", value,
                       row + r, col / kBlock);
            store(to + four_bit_row_place(r), 0, scale);
        }
    }
};

/// A block as FP8, with a scale for each row.
struct UnpackedBlock {
    uint8_t codes[kBlock][kBlock];
    float scales[kBlock];
};
UnpackedBlock unpack_block(FourBitCodes codes, const uint8_t* block, float scale) {
    UnpackedBlock out;
    const bool mxfp4 = codes == FourBitCodes::Mxfp4;
    for (uint32_t r = 0; r < kBlock; ++r) {
        const auto of_row = load<uint16_t>(block + four_bit_row_place(r), 0);
        out.scales[r] = mxfp4 ? scale : float_of_bf16(of_row);
        for (uint32_t k = 0; k < kBlock; ++k) {
            const FourBitPlace at = four_bit_place(r, k);
            const auto word = load<uint32_t>(block + at.word, 0);
            out.codes[r][k] = four_bit_e4m3(codes, word >> at.magnitude & 7, (word >> at.sign & 1) != 0,
                                            mxfp4 ? of_row >> k / 32 * 4 & 15u : 0);
        }
    }
    return out;
}

int64_t blocks_of(int64_t rows, int64_t cols) {
    return ((rows + kBlock - 1) / kBlock) * ((cols + kBlock - 1) / kBlock);
}

}  // namespace

int64_t packed_bytes(FourBitFormat format, int64_t rows, int64_t cols) {
    const auto blocks = static_cast<uint64_t>(blocks_of(rows, cols));
    return static_cast<int64_t>(four_bit_matrix_bytes(codes_of(format), blocks));
}

void pack_blocks(const FourBitSource& source, uint8_t* packed) {
    const int64_t rows = source.codes.rows, cols = source.codes.cols * 2, blocks = blocks_of(rows, cols);
    std::memset(packed, 0, static_cast<size_t>(packed_bytes(source.format, rows, cols)));
    void* const scales = packed + blocks * kFourBitBlockBytes;
    int64_t i = 0;
    for (int64_t row = 0; row < rows; row += kBlock)
        for (int64_t col = 0; col < cols; col += kBlock, ++i) {
            const SourceBlock block{source, row, col};
            uint8_t* const to = packed + i * kFourBitBlockBytes;
            block.put_codes(to);
            if (source.format == FourBitFormat::Mxfp4) store(scales, i, block.put_shifts(to));
            else block.put_row_scales(to);
        }
}

void unpack_rows(const FourBitWeights& weights, int64_t group, int64_t n_block, const Matrix& q, const Matrix& scales) {
    const bool mxfp4 = weights.format == FourBitFormat::Mxfp4;
    const auto* const packed =
        static_cast<const uint8_t*>(weights.data) + group * packed_bytes(weights.format, weights.rows, weights.cols);
    const void* const block_scales = packed + blocks_of(weights.rows, weights.cols) * kFourBitBlockBytes;
    const int64_t k_blocks = (weights.cols + kBlock - 1) / kBlock;
    const int64_t first = n_block * kBlock, rows = std::min(kBlock, weights.rows - first);
    for (int64_t k_block = 0; k_block < k_blocks; ++k_block) {
        const int64_t i = n_block * k_blocks + k_block;
        const UnpackedBlock block = unpack_block(codes_of(weights.format), packed + i * kFourBitBlockBytes,
                                                 mxfp4 ? load<float>(block_scales, i) : 0);
        const int64_t col = k_block * kBlock, cols = std::min(kBlock, weights.cols - col);
        for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < cols; ++k)
                store(q.data, (first + r) * q.row_stride + (col + k) * q.col_stride, block.codes[r][k]);
            const int64_t scale_row = mxfp4 ? n_block : first + r;
            store(scales.data, scale_row * scales.row_stride + k_block * scales.col_stride, block.scales[r]);
        }
    }
}

}  // namespace finegemm
