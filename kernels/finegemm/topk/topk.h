// Selection of the k largest numbers of each row: their order, and the configurations, shared memory and parameters of
// the kernels that select. Layer topk. docs/indexer_topk.md has the picture.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

inline constexpr uint32_t kTopkMost = 2048;          // k, at most
inline constexpr int32_t kTopkNone = -1;             // the index where a row has fewer than k numbers
inline constexpr uint32_t kTopkHistogramBins = 256;  // of the histogram that callers may ask for
inline constexpr uint32_t kTopkDigits = 3;           // of a key, the first one highest
inline constexpr uint32_t kTopkBins = 1u << 11;      // values of a digit; the last digit has half of them

/// A number as an integer whose order is that of numbers: -0 equals 0, and NaN is above all, as torch.topk has it. 0 is
/// of no number.
FG_HD constexpr uint32_t topk_key(uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return ~0u;
    if (bits == 0x80000000u) bits = 0;
    return bits ^ (bits >> 31 != 0 ? ~0u : 0x80000000u);
}
FG_HD constexpr uint32_t topk_key(float x) { return topk_key(float_bits(x)); }

/// Digit `i` of a key, and the bits that go before it.
FG_HD constexpr uint32_t topk_digit_shift(uint32_t i) { return i == 0 ? 21 : i == 1 ? 10 : 0; }
FG_HD constexpr uint32_t topk_digit(uint32_t key, uint32_t i) {
    return key >> topk_digit_shift(i) & (i == 2 ? kTopkBins / 2 - 1 : kTopkBins - 1);
}

/// The bin of the histogram in which numbers of a first digit are counted, which is sign, exponent and two bits of the
/// mantissa. Bins from 128 up: four for each power of two from 2^-15 on. What is smaller is in 128, what is 1.75 * 2^16
/// or larger, or NaN, in 255. Negative numbers have the bins below, the other way round.
FG_HD constexpr uint32_t topk_histogram_bin(uint32_t digit) {
    constexpr uint32_t kHalf = kTopkHistogramBins / 2, kLeast = (127 - 15) * 4, kNotNegative = kTopkBins / 2;
    const uint32_t magnitude = digit >= kNotNegative ? digit - kNotNegative : kNotNegative - 1 - digit;
    const uint32_t bin = magnitude > kLeast ? min(magnitude - kLeast, kHalf - 1) : 0;
    return digit >= kNotNegative ? kHalf + bin : kHalf - 1 - bin;
}

/// Columns of a row that numbers are selected from.
struct TopkWindow {
    uint32_t begin = 0, end = 0;
    constexpr bool operator==(const TopkWindow&) const = default;
};

/// What of a row a CTA selects from, by fours of columns that begin at multiples of four.
struct TopkQuads {
    uint32_t first, count;
};

/// Everything about a kernel that is fixed when it is compiled.
struct TopkConfig {
    uint32_t ctas = 1;  // of the cluster that has a row

    static constexpr uint32_t kCount = 4, kMostCtas = 8;  // ctas: powers of two
    FG_HD constexpr uint32_t index() const { return ctas == 1 ? 0 : ctas == 2 ? 1 : ctas == 4 ? 2 : 3; }
    FG_HD constexpr uint32_t cluster() const { return ctas; }
    FG_HD static constexpr uint32_t threads() { return 512; }
    FG_HD static constexpr uint32_t warps() { return threads() / kWarpSize; }
    FG_HD static constexpr uint32_t ctas_per_sm() { return 2; }
    /// Fours of columns that a thread keeps the keys of. Those beyond are loaded for each pass.
    FG_HD static constexpr uint32_t held() { return 8; }
    FG_HD static constexpr uint32_t held_columns() { return held() * threads() * 4; }
    FG_HD static constexpr uint32_t smem_bytes();

    /// What CTA `rank` has. The fours of a row are numbered from the one in which the window begins.
    FG_HD constexpr TopkQuads quads(TopkWindow w, uint32_t rank) const {
        const uint32_t all = ceil_div(w.end, 4) - w.begin / 4, each = ceil_div(all, ctas);
        const uint32_t first = min(rank * each, all);
        return {w.begin / 4 + first, min(each, all - first)};
    }
    /// What a warp of it has: whole rounds of its lanes.
    FG_HD static constexpr TopkQuads quads_of_warp(TopkQuads cta, uint32_t warp) {
        const uint32_t each = align_up(ceil_div(cta.count, warps()), kWarpSize);
        const uint32_t first = min(warp * each, cta.count);
        return {cta.first + first, min(each, cta.count - first)};
    }
};

/// A number in order and its column: the larger, or of equal ones that of the lower column, is larger. 0 is none.
FG_HD constexpr uint64_t topk_ranked(uint32_t key, uint32_t column) { return uint64_t{key} << 32 | ~column; }
FG_HD constexpr uint32_t topk_column(uint64_t ranked) { return ~static_cast<uint32_t>(ranked); }

/// The value of a digit that was found, and how many keys are above it.
struct TopkFound {
    uint32_t digit, before;
};

struct TopkShared {
    uint32_t keys[TopkConfig::held()][TopkConfig::threads() * 4];
    union {
        /// How many keys have each value of a digit, of those that agree in the digits before; other CTAs read them.
        uint32_t counts[kTopkDigits][kTopkBins];
        uint64_t ranked[kTopkMost];  // what has been selected, to be sorted
    };
    uint32_t histogram[kTopkHistogramBins];
    uint32_t above[TopkConfig::warps()], equal[TopkConfig::warps()];  // keys of each warp, compared with the least
    uint32_t totals[2];                                               // the CTA's; other CTAs read them
    uint32_t sums[TopkConfig::warps()];
    TopkFound found[kTopkDigits];
};
FG_HD constexpr uint32_t TopkConfig::smem_bytes() { return sizeof(TopkShared); }

struct TopkParams {
    const float* logits;
    int64_t logits_stride;         // elements, like all strides
    const int32_t *starts, *ends;  // windows; null: from column 0, or to the last one
    int64_t ends_stride;           // from those of `each` rows to those of the next
    int32_t* indices;
    int64_t indices_stride;
    float* values;  // null: not wanted
    int64_t values_stride;
    int32_t* histogram;  // null: not wanted
    int64_t histogram_stride;
    uint32_t rows, width;  // of logits
    uint32_t k;
    uint32_t each;  // rows that share an end
    uint32_t
        own_lengths;  // 1: each of them has its own, none above that of the last; else the row before sees one less
    uint32_t sorted;

    FG_HD constexpr TopkWindow window(uint32_t row) const {
        const uint32_t begin = starts ? clipped(starts[row]) : 0, end = ends ? end_of(row) : width;
        return begin < end ? TopkWindow{begin, end} : TopkWindow{};
    }

private:
    FG_HD constexpr uint32_t clipped(int32_t x) const { return x < 0 ? 0 : min(static_cast<uint32_t>(x), width); }
    FG_HD constexpr uint32_t end_of(uint32_t row) const {
        const uint32_t i = row % each, behind = each - 1 - i;
        const int32_t* const of = ends + row / each * ends_stride;
        if (own_lengths) return min(clipped(of[i]), clipped(of[each - 1]));
        return *of > static_cast<int32_t>(behind) ? clipped(*of - static_cast<int32_t>(behind)) : 0;
    }
};

}  // namespace finegemm
