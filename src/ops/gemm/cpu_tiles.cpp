// One tile of D on the CPU. Layer engine.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/cpu_tiles.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <finegemm/core/fp8.h>

#include "ops/gemm/call.h"
#include "ops/gemm/cpu_panels.h"
#include "ops/gemm/cpu_scale_factors.h"
#include "ops/gemm/cpu_tiles.h"
#include "plan/elements.h"

HWY_BEFORE_NAMESPACE();
namespace finegemm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Parts of a k-block that have scales of their own.
int64_t parts_of(const CpuTile& t) { return is_mx(t.args.sfb) ? kMxParts : 1; }
/// Whether a scale of A serves parts that have several of B: what these make together is multiplied with it.
bool sums_parts_first(const CpuTile& t) { return is_mx(t.args.sfb) && !is_mx(t.args.sfa); }

/// The scales of the tile's columns in a part of a k-block; 0 past the end.
template <typename T>
void scales_of_cols(const CpuTile& t, int64_t kb, uint32_t part, T* scales) {
    std::fill_n(scales, kCpuTileCols, T{0});
    const bool rows = has_row_scales(t.args.b, t.args.sfb);
    for (int64_t c = 0; c < t.cols; ++c) scales[c] = scale_at(t.args.sfb, rows ? t.col + c : t.col / kBlock, kb, part);
}

/// sums[Rows x 2 vectors] += (A * B) * (sfa * sfb): `length` of K are summed in registers, then scaled.
template <int Rows, typename D, typename T = hn::TFromD<D>>
HWY_INLINE void multiply_block(D d, int64_t length, const T* a, const T* b, const T* sfa, const T* sfb, T* sums) {
    const size_t lanes = hn::Lanes(d);
    hn::Vec<D> left[Rows], right[Rows];
    for (int r = 0; r < Rows; ++r) left[r] = right[r] = hn::Zero(d);
    for (int64_t k = 0; k < length; ++k) {
        const auto b0 = hn::Load(d, b + k * kPitch), b1 = hn::Load(d, b + k * kPitch + lanes);
        for (int r = 0; r < Rows; ++r) {
            const auto x = hn::Set(d, a[r * kBlock + k]);
            left[r] = hn::MulAdd(x, b0, left[r]);
            right[r] = hn::MulAdd(x, b1, right[r]);
        }
    }
    const auto left_scale = hn::LoadU(d, sfb), right_scale = hn::LoadU(d, sfb + lanes);
    for (int r = 0; r < Rows; ++r) {
        const auto s = hn::Set(d, sfa[r]);
        T* to = sums + r * kCpuTileCols;
        hn::StoreU(hn::MulAdd(left[r], hn::Mul(s, left_scale), hn::LoadU(d, to)), d, to);
        hn::StoreU(hn::MulAdd(right[r], hn::Mul(s, right_scale), hn::LoadU(d, to + lanes)), d, to + lanes);
    }
}

/// In T all the way: products, sums of a block, scales, sums of blocks.
template <typename T>
void multiply_tile(const CpuTile& t, T* sums) {
    const hn::CappedTag<T, kCpuTileCols / 2> d;
    const auto step = static_cast<int64_t>(2 * hn::Lanes(d));
    Panels<T> panels(t.rows);
    std::fill_n(sums, t.rows * kCpuTileCols, T{0});
    const int64_t blocks = ceil_div(static_cast<uint32_t>(t.args.a.cols), kScaleBlock);
    const int64_t parts = parts_of(t), length = kBlock / parts;
    for (int64_t kb = 0; kb < blocks; ++kb) {
        visit_codes(t.args.a.dtype, [&]<typename Type>(Type) { panels.template load_a<ToFloat<Type>>(t, kb); });
        visit_codes(t.args.b.dtype, [&]<typename Type>(Type) { panels.template load_b<ToFloat<Type>>(t, kb); });
        for (int64_t part = 0; part < parts; ++part) {
            T sfa[kCpuTileRows], sfb[kCpuTileCols];
            const auto of_block = static_cast<uint32_t>(part);
            for (int64_t r = 0; r < t.rows; ++r) sfa[r] = scale_at(t.args.sfa, t.row + r, kb, of_block);
            scales_of_cols(t, kb, of_block, sfb);
            const int64_t k = part * length;
            for (int64_t c = 0; c < t.cols; c += step) {
                int64_t r = 0;
                const auto run = [&]<int Rows>(std::integral_constant<int, Rows>) {
                    for (; r + Rows <= t.rows; r += Rows)
                        multiply_block<Rows>(d, length, &panels.a[r * kBlock + k], &panels.b[k * kPitch + c], sfa + r,
                                             sfb + c, &sums[r * kCpuTileCols + c]);
                };
                run(std::integral_constant<int, 6>());
                run(std::integral_constant<int, 2>());
                run(std::integral_constant<int, 1>());
            }
        }
    }
}

void FastTile(const CpuTile& t, float* sums) { multiply_tile(t, sums); }
void ExactTile(const CpuTile& t, double* sums) { multiply_tile(t, sums); }

// The tensor core's arithmetic (docs/numerics.md), in integers. A code is a mantissa of 0 to 15 eighths and an exponent
// of -6 to 8, of e5m2 of -14 to 15; a subnormal code keeps the exponent of the smallest normal one. NaN and infinity
// are kept apart.
constexpr int32_t kFraction = 13;    // bits that an addend keeps below the largest exponent
constexpr int32_t kNothing = -1000;  // the exponent of zero: never the largest
constexpr int32_t kStepK = 32;       // products that one wgmma sums at once

/// A type of one byte: its mantissa's bits, the bias of its exponent, and the first code that is not finite.
template <typename Type>
struct Fp8;
template <>
struct Fp8<Codes<DType::E4M3>> {
    static constexpr int32_t kBits = 3, kBias = 7, kSpecial = 0x7f;
};
template <>
struct Fp8<Codes<DType::E5M2>> {
    static constexpr int32_t kBits = 2, kBias = 15, kSpecial = 0x7c;
};
template <typename Type>
constexpr bool is_special(uint8_t c) {
    return (c & 0x7f) >= Fp8<Type>::kSpecial;
}
template <typename Type>
struct ToMantissa {  // signed
    using Code = uint8_t;
    constexpr int32_t operator()(uint8_t c) const {
        constexpr int32_t kOne = 1 << Fp8<Type>::kBits;
        const int32_t magnitude = ((c & 0x7f) >= kOne ? kOne : 0) + (c & (kOne - 1)), eighths = magnitude * (8 / kOne);
        return is_special<Type>(c) ? 0 : c & 0x80 ? -eighths : eighths;
    }
};
template <typename Type>
struct ToExponent {  // of zero: so low that no sum with another exponent is the largest
    using Code = uint8_t;
    constexpr int32_t operator()(uint8_t c) const {
        if ((c & 0x7f) == 0 || is_special<Type>(c)) return kNothing;
        return std::max((c & 0x7f) >> Fp8<Type>::kBits, 1) - Fp8<Type>::kBias;
    }
};

/// Calls visit(Codes<type>()) for a type of one byte.
template <typename Visit>
void visit_fp8(DType type, const Visit& visit) {
    visit_codes(type, [&]<typename Type>(Type) {
        if constexpr (requires { Fp8<Type>::kBits; }) visit(Type());
    });
}

/// sum + the products of one wgmma, for one row and a vector of columns. Mantissas of products count 2^(exponent - 6).
template <typename D>
HWY_INLINE hn::Vec<hn::Rebind<float, D>> wgmma_step(D d, const int32_t* a_mantissa, const int32_t* a_exponent,
                                                    const int32_t* b_mantissa, const int32_t* b_exponent,
                                                    hn::Vec<hn::Rebind<float, D>> sum) {
    const hn::Rebind<float, D> df;
    const auto zero = hn::Zero(d);
    const auto bits = hn::BitCast(d, sum);
    const auto biased = hn::And(hn::ShiftRight<23>(bits), hn::Set(d, 255));
    const auto no_sum = hn::Eq(biased, zero);
    const auto sum_exponent = hn::IfThenElse(no_sum, hn::Set(d, kNothing), hn::Sub(biased, hn::Set(d, 127)));
    auto largest = sum_exponent;
    for (int32_t k = 0; k < kStepK; ++k)
        largest = hn::Max(largest, hn::Add(hn::Set(d, a_exponent[k]), hn::Load(d, b_exponent + k * kPitch)));

    // In units of 2^(largest - kFraction): a product of the largest exponent moves up by 7, the others down from there.
    const auto cap = hn::Set(d, 31);
    auto total = zero;
    for (int32_t k = 0; k < kStepK; ++k) {
        const auto product = hn::Mul(hn::Set(d, a_mantissa[k]), hn::Load(d, b_mantissa + k * kPitch));
        const auto exponent = hn::Add(hn::Set(d, a_exponent[k]), hn::Load(d, b_exponent + k * kPitch));
        const auto down = hn::Min(hn::Sub(largest, exponent), cap);
        const auto magnitude = hn::Shr(hn::ShiftLeft<kFraction - 6>(hn::Abs(product)), down);
        total = hn::Add(total, hn::IfThenElse(hn::Lt(product, zero), hn::Sub(zero, magnitude), magnitude));
    }
    const auto fraction = hn::IfThenZeroElse(no_sum, hn::Or(hn::And(bits, hn::Set(d, 0x7fffff)), hn::Set(d, 0x800000)));
    const auto down = hn::Min(hn::Add(hn::Sub(largest, sum_exponent), hn::Set(d, 23 - kFraction)), cap);
    const auto kept = hn::Shr(fraction, down);
    total = hn::Add(total, hn::IfThenElse(hn::Lt(bits, zero), hn::Sub(zero, kept), kept));

    // |total| < 2^24 is exact in float; then 13 fraction bits of it, and the unit goes into the exponent.
    const auto magnitude = hn::BitCast(d, hn::ConvertTo(df, hn::Abs(total)));
    const auto truncated = hn::AndNot(hn::Set(d, (1 << (23 - kFraction)) - 1), magnitude);
    const auto scaled = hn::Add(truncated, hn::ShiftLeft<23>(hn::Sub(largest, hn::Set(d, kFraction))));
    const auto sign = hn::And(total, hn::Set(d, std::numeric_limits<int32_t>::min()));
    return hn::BitCast(df, hn::IfThenZeroElse(hn::Eq(total, zero), hn::Or(scaled, sign)));
}

/// A k-block of FP8.
struct Fp8Block {
    Panels<int32_t> mantissas, exponents;
    bool special_row[kCpuTileRows], special_col[kCpuTileCols];

    explicit Fp8Block(int64_t rows) : mantissas(rows), exponents(rows) {}

    void load(const CpuTile& t, int64_t kb) {
        const auto [begin, size] = block_range(t, kb);
        const auto has_special = [size = size]<typename Type>(const uint8_t* c, Type) {
            return std::any_of(c, c + size, is_special<Type>);
        };
        visit_fp8(t.args.a.dtype, [&]<typename Type>(Type type) {
            mantissas.load_a<ToMantissa<Type>>(t, kb);
            exponents.load_a<ToExponent<Type>>(t, kb);
            for (int64_t r = 0; r < t.rows; ++r)
                special_row[r] = has_special(codes<uint8_t>(t.args.a, t.row + r) + begin, type);
        });
        visit_fp8(t.args.b.dtype, [&]<typename Type>(Type type) {
            mantissas.load_b<ToMantissa<Type>>(t, kb);
            exponents.load_b<ToExponent<Type>>(t, kb);
            for (int64_t c = 0; c < t.cols; ++c)
                special_col[c] = has_special(codes<uint8_t>(t.args.b, t.col + c) + begin, type);
        });
    }
    template <typename D>
    HWY_INLINE hn::Vec<hn::Rebind<float, D>> sum(D d, int64_t r, int64_t c, Range of) const {
        const int32_t *am = &mantissas.a[r * kBlock], *ae = &exponents.a[r * kBlock];
        auto sum = hn::Zero(hn::Rebind<float, D>());
        for (int64_t k = of.begin; k < of.begin + of.size; k += kStepK)
            sum = wgmma_step(d, am + k, ae + k, &mantissas.b[k * kPitch + c], &exponents.b[k * kPitch + c], sum);
        return sum;
    }
    float element(const CpuTile& t, int64_t kb, int64_t r, int64_t c, float sum) const {
        return special_row[r] || special_col[c] ? special_sum(t, kb, r, c) : sum;
    }

private:
    /// The sum of products some of which are not finite: NaN, or infinite.
    static float special_sum(const CpuTile& t, int64_t kb, int64_t r, int64_t c) {
        const auto [begin, size] = block_range(t, kb);
        float sum = 0;
        visit_fp8(t.args.a.dtype, [&]<typename A>(A) {
            visit_fp8(t.args.b.dtype, [&]<typename B>(B) {
                const uint8_t *a = codes<uint8_t>(t.args.a, t.row + r), *b = codes<uint8_t>(t.args.b, t.col + c);
                for (int64_t k = begin; k < begin + size; ++k) sum += A::value(a[k]) * B::value(b[k]);
            });
        });
        return std::isnan(sum) ? std::numeric_limits<float>::quiet_NaN() : sum;
    }
};

/// A k-block of integers, whose sums are exact in float, too.
struct IntegerBlock {
    using Decode = ToFloat<Codes<DType::I8>>;
    Panels<float> values;

    explicit IntegerBlock(int64_t rows) : values(rows) {}

    void load(const CpuTile& t, int64_t kb) {
        values.load_a<Decode>(t, kb);
        values.load_b<Decode>(t, kb);
    }
    template <typename D>
    HWY_INLINE hn::Vec<hn::Rebind<float, D>> sum(D, int64_t r, int64_t c, Range of) const {
        const hn::Rebind<float, D> d;
        auto sum = hn::Zero(d);
        for (int64_t k = of.begin; k < of.begin + of.size; ++k)
            sum = hn::MulAdd(hn::Set(d, values.a[r * kBlock + k]), hn::Load(d, &values.b[k * kPitch + c]), sum);
        return sum;
    }
    float element(const CpuTile&, int64_t, int64_t, int64_t, float sum) const { return sum; }
};

/// The scales of a tile's rows and columns in a part of a k-block, and their products.
struct HopperScales {
    bool wgmma;
    float row[kCpuTileRows], col[kCpuTileCols];
    FactorOperand row_parts[kCpuTileRows], col_parts[kCpuTileCols];  // if `wgmma`

    void load(const CpuTile& t, int64_t kb, uint32_t part) {
        for (int64_t r = 0; r < t.rows; ++r) row[r] = scale_at(t.args.sfa, t.row + r, kb, part);
        scales_of_cols(t, kb, part, col);
        if (!wgmma) return;
        std::transform(row, row + t.rows, row_parts, factor_operand);
        std::transform(col, col + t.cols, col_parts, factor_operand);
    }
    float factor(int64_t r, int64_t c, bool of_col_alone) const {
        return wgmma ? wgmma_factor(row_parts[r], col_parts[c]) : of_col_alone ? col[c] : row[r] * col[c];
    }
};

template <typename Block>
void hopper_sums(const CpuTile& t, BlockSteps blocks, bool tensor_core_scales, float* sums) {
    const hn::CappedTag<int32_t, kCpuTileCols> d;
    const hn::Rebind<float, decltype(d)> df;
    Block block(t.rows);
    std::fill_n(sums, t.rows * kCpuTileCols, 0.0f);
    HWY_ALIGN float product[kCpuTileCols];
    const int64_t parts = parts_of(t), length = kBlock / parts;
    const bool parts_first = sums_parts_first(t);
    std::vector<float> of_parts(parts_first ? static_cast<size_t>(t.rows * kCpuTileCols) : 0);
    HopperScales scales{.wgmma = tensor_core_scales, .row = {}, .col = {}, .row_parts = {}, .col_parts = {}};
    for (int64_t kb = blocks.first; kb < blocks.end; kb += blocks.step) {
        block.load(t, kb);
        std::ranges::fill(of_parts, 0.0f);
        for (int64_t part = 0; part < parts; ++part) {
            scales.load(t, kb, static_cast<uint32_t>(part));
            for (int64_t r = 0; r < t.rows; ++r) {
                for (int64_t c = 0; c < t.cols; c += static_cast<int64_t>(hn::Lanes(d)))
                    hn::Store(block.sum(d, r, c, {part * length, length}), df, product + c);
                float* to = (parts_first ? of_parts.data() : sums) + r * kCpuTileCols;
                for (int64_t c = 0; c < t.cols; ++c)
                    to[c] = std::fma(block.element(t, kb, r, c, product[c]), scales.factor(r, c, parts_first), to[c]);
            }
        }
        for (size_t i = 0; i < of_parts.size(); ++i)
            sums[i] = std::fma(of_parts[i], scales.row[i / kCpuTileCols], sums[i]);
    }
}

void HopperTile(const CpuTile& t, BlockSteps blocks, bool tensor_core_scales, float* sums) {
    const auto sum = t.args.a.dtype == DType::I8 ? hopper_sums<IntegerBlock> : hopper_sums<Fp8Block>;
    sum(t, blocks, tensor_core_scales, sums);
}

}  // namespace finegemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace finegemm {

HWY_EXPORT(FastTile);
HWY_EXPORT(ExactTile);
HWY_EXPORT(HopperTile);

void fast_tile(const CpuTile& tile, float* sums) { HWY_DYNAMIC_DISPATCH(FastTile)(tile, sums); }
void exact_tile(const CpuTile& tile, double* sums) { HWY_DYNAMIC_DISPATCH(ExactTile)(tile, sums); }
void hopper_tile(const CpuTile& tile, BlockSteps blocks, bool tensor_core_scales, float* sums) {
    HWY_DYNAMIC_DISPATCH(HopperTile)(tile, blocks, tensor_core_scales, sums);
}

}  // namespace finegemm
#endif
