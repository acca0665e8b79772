// Random weights of 4 bits as checkpoints have them, what they are, and products with them. Layer tests.
#pragma once

#include <cmath>
#include <vector>

#include "ops/four_bit/cpu.h"
#include "ops/four_bit/cpu_pack.h"
#include "support/grouped.h"
#include "support/random.h"

namespace finegemm::test {

/// Two codes in a byte, in any order and any convention. Groups of zeros have any scale.
struct FourBitMatrix {
    FourBitFormat format;
    int64_t rows, cols;
    bool high_first, offset;
    Buffer<uint8_t> codes, exponents;
    Buffer<uint16_t> scales;

    FourBitMatrix(Random& r, FourBitFormat type, int64_t n, int64_t k)
        : format(type),
          rows(n),
          cols(k),
          high_first(r.one_in(2)),
          offset(type == FourBitFormat::Int4 && r.one_in(2)),
          codes(DType::E4M3, n, k / 2, r.any(0, 5)),
          exponents(DType::E4M3, n, k / 32, r.any(0, 3)),
          scales(DType::BF16, n, (k + 127) / 128, r.any(0, 3)) {
        const int64_t least = r.one_of<int64_t>({0, 100, 120, 243});
        const int64_t spread = r.one_of<int64_t>({0, 3, 6, 11});
        for (int64_t row = 0; row < n; ++row) {
            for (int64_t i = 0; i < k / 2; ++i) codes.at(row, i) = static_cast<uint8_t>(r.any(0, 255));
            for (int64_t i = 0; i < k / 32; ++i) {
                exponents.at(row, i) = static_cast<uint8_t>(least + r.any(0, spread));
                if (type == FourBitFormat::Int4 || !r.one_in(10)) continue;
                exponents.at(row, i) = static_cast<uint8_t>(r.any(0, 254));
                for (int64_t j = 0; j < 16; ++j)
                    codes.at(row, i * 16 + j) = static_cast<uint8_t>(r.any(0, 3) * 8 % 24 * 17 & 0x88);
            }
            for (int64_t i = 0; i < (k + 127) / 128; ++i)
                scales.at(row, i) = bf16_of_float(std::abs(r.normal(1)) * std::exp2(static_cast<float>(r.any(-9, 9))));
        }
    }
    FourBitSource source() {
        const bool mxfp4 = format == FourBitFormat::Mxfp4;
        return {format, codes.view(), mxfp4 ? exponents.view() : scales.view(), high_first, offset};
    }
    /// A weight by the definition of its format.
    double value(int64_t row, int64_t k) {
        const bool upper = (k % 2 == 0) == high_first;
        const int code = codes.at(row, k / 2) >> (upper ? 4 : 0) & 15;
        if (format == FourBitFormat::Int4) {
            const int integer = offset ? code - 8 : code < 8 ? code : code - 16;
            return integer * static_cast<double>(float_of_bf16(scales.at(row, k / 128)));
        }
        constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        const double magnitude = std::ldexp(kValues[code & 7], exponents.at(row, k / 32) - 127);
        return code & 8 ? -magnitude : magnitude;
    }
};

/// Packed, from a multiple of 16 on.
class PackedBytes {
public:
    explicit PackedBytes(int64_t bytes) : bytes_(static_cast<size_t>(bytes) + 16, 0xff) {}
    uint8_t* data() { return bytes_.data() + (16 - reinterpret_cast<uintptr_t>(bytes_.data()) % 16) % 16; }

private:
    std::vector<uint8_t> bytes_;
};

/// A product of any groups of rows, or of whole matrices; rows without a group hold nothing but NaN.
struct FourBitCase {
    FourBitFormat format;
    int64_t n, k;
    bool whole;
    GroupedProblem rows;
    PackedBytes packed;
    FourBitOptions options{.numerics = Numerics::Hopper};

    static Grouping any_grouping(Random& r, bool whole, int64_t most_rows) {
        const GroupForm form =
            whole ? GroupForm::Masked
                  : r.one_of({GroupForm::Offsets, GroupForm::Indices, GroupForm::PrefixSums, GroupForm::Masked});
        const int64_t groups = r.one_in(8) ? r.any(33, 70) : r.any(1, 5), alignment = r.one_in(2) ? 64 : 128;
        const int64_t m = groups > 5 ? r.any(1, 80) : r.any(1, most_rows);
        Grouping g = random_grouping(form, groups, m, alignment, static_cast<uint32_t>(r.any(0, 1 << 20)));
        if (whole) g.numbers.assign(static_cast<size_t>(groups), static_cast<int32_t>(m));
        return g;
    }
    explicit FourBitCase(Random& r, int64_t most_rows = 200) : FourBitCase(r, r.one_in(5), most_rows) {}
    FourBitCase(Random& r, bool is_whole, int64_t most_rows)
        : format(r.one_in(2) ? FourBitFormat::Mxfp4 : FourBitFormat::Int4),
          n(8 * r.any(1, r.one_in(3) ? 40 : 16)),
          k(format == FourBitFormat::Int4 ? 128 * r.any(1, 3) : 32 * r.any(1, 12)),
          whole(is_whole),
          rows(any_grouping(r, is_whole, most_rows), n, k, static_cast<uint32_t>(r.any(0, 1 << 20)), 16 * r.any(0, 2),
               r.any(0, 2)),
          packed(groups() * packed_bytes(format, n, k)) {
        if (r.one_in(2)) options.num_sms = static_cast<int32_t>(r.any(1, 3));
        for (int64_t g = 0; g < groups(); ++g)
            pack_blocks(FourBitMatrix(r, format, n, k).source(), packed.data() + g * packed_bytes(format, n, k));
    }
    int64_t groups() const { return rows.grouping.groups; }
    FourBitCall call() {
        const GroupedGemmArgs fp8 = rows.args();
        FourBitArgs args{fp8.a, fp8.sfa, {packed.data(), format, groups(), n, k}, fp8.d, fp8.groups};
        if (whole) args.groups = {.form = GroupForm::Whole};
        return {args, options};
    }
};

}  // namespace finegemm::test
