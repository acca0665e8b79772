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

FourBitShape shape_of(int64_t rows, int64_t cols) {
    return FourBitShape::of(static_cast<uint32_t>(rows), static_cast<uint32_t>(cols));
}
int64_t slab_at(const FourBitShape& shape, int64_t row, int64_t k_block) {
    return (row / kSlabRows * shape.k_blocks + k_block) * kSlabBytes;
}
uint32_t in_slab(int64_t row) { return static_cast<uint32_t>(row % kSlabRows); }

/// Columns of a source from a multiple of 128 on, in slabs that are zero before.
struct Packing {
    const FourBitSource& s;
    FourBitShape shape;
    uint8_t* packed;

    int64_t rows() const { return s.codes.rows; }
    uint8_t* slab(int64_t row, int64_t k_block) const { return packed + slab_at(shape, row, k_block); }

    void put_codes(int64_t row, int64_t k_block) const {
        uint8_t* const to = slab(row, k_block);
        for (uint32_t k = 0; k < kBlock; k += k % 16 == 12 ? 20 : 4)
            store(to + four_bit_place(in_slab(row), k).word, 0,
                  word_of(four_of(s, row, k_block * kBlock + k), four_of(s, row, k_block * kBlock + k + 16)));
    }
    /// The biased exponent of a group of a row that has weights besides zero.
    std::optional<uint32_t> exponent(int64_t row, int64_t group) const {
        if (group >= s.scales.cols) return {};
        const uint32_t exponent = load<uint8_t>(s.scales.data, row * s.scales.row_stride + group * s.scales.col_stride);
        if (exponent == 255)
            reject("exponents", "is NaN (255) at [{}, {}], must be from 0 to 254; mend the checkpoint", row, group);
        for (int64_t k = group * kGroup; k < (group + 1) * kGroup; k += 4)
            if (four_of(s, row, k) & 0x7777u) return exponent;
        return {};
    }
    /// Shifts of the groups of a block of 128 x 128; returns its scale.
    float put_shifts(int64_t row, int64_t k_block) const {
        constexpr int64_t kGroups = kBlock / kGroup;
        const int64_t end = std::min(row + kBlock, rows());
        uint32_t least = 255, most = 0;
        for (int64_t r = row; r < end; ++r)
            for (int64_t group = 0; group < kGroups; ++group)
                if (const auto e = exponent(r, k_block * kGroups + group))
                    least = std::min(least, *e), most = std::max(most, *e);
        if (most < least) least = most = kBias;
        if (most - least > kMostMxfp4Shift)
            reject("exponents",
                   "range from {} to {} in the block of 128 x 128 at [{}, {}], where they may differ by {}; keep this "
                   "matrix in another type",
                   least, most, row, k_block * kBlock, kMostMxfp4Shift);
        // The scale of shift 0, which is to be finite, too.
        const uint32_t base = std::min<uint32_t>(least, kLargestExponent + kBias + kMxfp4Exponent);
        for (int64_t r = row; r < end; ++r) {
            uint32_t shifts = 0;
            for (int64_t group = 0; group < kGroups; ++group)
                if (const auto e = exponent(r, k_block * kGroups + group)) shifts |= (*e - base) << group * 4;
            store(slab(r, k_block) + four_bit_row_place(in_slab(r)), 0, static_cast<uint16_t>(shifts));
        }
        return std::ldexp(1.0f, static_cast<int>(base) - static_cast<int>(kBias) - kMxfp4Exponent);
    }
    void put_scale(int64_t row, int64_t k_block) const {
        const auto scale = load<uint16_t>(s.scales.data, row * s.scales.row_stride + k_block * s.scales.col_stride);
        const float value = float_of_bf16(scale);
        if (!std::isfinite(value) || value < 0)
            reject("scales", "is {} at [{}, {}], must be finite and not negative; mend the checkpoint", value, row,
                   k_block);
        store(slab(row, k_block) + four_bit_row_place(in_slab(row)), 0, scale);
    }
};

}  // namespace

int64_t packed_bytes(FourBitFormat format, int64_t rows, int64_t cols) {
    return static_cast<int64_t>(shape_of(rows, cols).bytes(codes_of(format)));
}

void pack_weights(const FourBitSource& source, uint8_t* packed) {
    const int64_t rows = source.codes.rows, cols = source.codes.cols * 2;
    const Packing packing{source, shape_of(rows, cols), packed};
    std::memset(packed, 0, static_cast<size_t>(packed_bytes(source.format, rows, cols)));
    for (int64_t k_block = 0; k_block < packing.shape.k_blocks; ++k_block) {
        for (int64_t row = 0; row < rows; ++row) packing.put_codes(row, k_block);
        if (source.format == FourBitFormat::Mxfp4)
            for (int64_t row = 0; row < rows; row += kBlock)
                store(packed + packing.shape.scales(), row / kBlock * packing.shape.k_blocks + k_block,
                      packing.put_shifts(row, k_block));
        else
            for (int64_t row = 0; row < rows; ++row) packing.put_scale(row, k_block);
    }
}

void unpack_rows(const FourBitWeights& weights, int64_t group, RowRange rows, const Matrix& q, const Matrix& scales) {
    const FourBitShape shape = shape_of(weights.rows, weights.cols);
    const FourBitCodes codes = codes_of(weights.format);
    const bool mxfp4 = codes == FourBitCodes::Mxfp4;
    const auto* const packed =
        static_cast<const uint8_t*>(weights.data) + group * packed_bytes(weights.format, weights.rows, weights.cols);
    for (int64_t row = rows.begin; row < rows.end; ++row)
        for (int64_t k_block = 0; k_block < shape.k_blocks; ++k_block) {
            const uint8_t* const slab = packed + slab_at(shape, row, k_block);
            const auto of_row = load<uint16_t>(slab + four_bit_row_place(in_slab(row)), 0);
            const int64_t block = row / kBlock * shape.k_blocks + k_block, scale_row = mxfp4 ? row / kBlock : row;
            store(scales.data, scale_row * scales.row_stride + k_block * scales.col_stride,
                  mxfp4 ? load<float>(packed + shape.scales(), block) : float_of_bf16(of_row));
            for (uint32_t k = 0; k < kBlock && k_block * kBlock + k < weights.cols; ++k) {
                const FourBitPlace at = four_bit_place(in_slab(row), k);
                const auto word = load<uint32_t>(slab + at.word, 0);
                store(q.data, row * q.row_stride + (k_block * kBlock + k) * q.col_stride,
                      four_bit_e4m3(codes, word >> at.magnitude & 7, (word >> at.sign & 1) != 0,
                                    mxfp4 ? of_row >> k / 32 * 4 & 15u : 0));
            }
        }
}

}  // namespace finegemm
