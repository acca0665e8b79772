// Selection of the k largest numbers of each row: their order, and the configurations, shared memory and parameters of
// the kernels that select. Layer topk. docs/indexer_topk.md has the picture.
#pragma once

#include <finegemm/core/fp8.h>

namespace finegemm {

inline constexpr uint32_t kTopkMost = 2048;          // k, at most
inline constexpr int32_t kTopkNone = -1;             // the index where a row has fewer than k numbers
inline constexpr uint32_t kTopkHistogramBins = 256;  // of the histogram that callers may ask for
inline constexpr uint32_t kTopkList = 512;           // keys that are compared with each other, at most
inline constexpr uint32_t kTopkSample = 128;         // of a row
inline constexpr uint32_t kTopkBracketBins = 512;    // intervals around the kth largest
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

/// Keys around the kth largest, in intervals: as many as there are bins, but for the last bin, which is of all keys
/// above. Keys below are not counted.
struct TopkBracket {
    uint32_t lower, upper, shift;

    FG_HD static constexpr TopkBracket between(uint32_t lower, uint32_t upper) {
        uint32_t shift = 0;
        while ((upper - lower) >> shift >= kTopkBracketBins - 1) ++shift;
        return {lower, upper, shift};
    }
    FG_HD constexpr bool has(uint32_t key) const { return key - lower <= upper - lower; }
    FG_HD constexpr uint32_t bin(uint32_t key) const { return (key - lower) >> shift; }
};

/// Of a sample, sorted in descending order, the keys that the kth largest of all is between, but for one row in
/// thousands: the sample's quantile, and more than three standard deviations on either side.
struct TopkQuantile {
    uint32_t upper, lower;  // places in the sample; none above: upper is `size`

    FG_HD static constexpr TopkQuantile of(uint32_t k, uint32_t count, uint32_t size) {
        const auto place = static_cast<uint32_t>(uint64_t{k} * size / count);
        const uint32_t margin = place / 4 + 10;
        return {place > margin ? place - margin : size, place + margin};
    }
};

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

/// The bin that the kth largest key is in, keys in bins above it, and in it.
struct TopkFound {
    uint32_t bin, above, count;
};
/// The least key that is selected; of those that equal it `equal` are, those of the lowest columns.
struct TopkLeast {
    uint32_t key, equal;
};

struct TopkShared {
    uint32_t keys[TopkConfig::held()][TopkConfig::threads()][4];
    union {
        uint32_t counts[kTopkBins];  // of keys, by interval or by value of a digit; other CTAs read them
        uint64_t ranked[kTopkMost];  // what has been selected, to be sorted
    };
    uint32_t listed[kTopkList];         // keys of the CTA in the interval of the kth largest; other CTAs read them
    uint32_t listed_by_all[kTopkList];  // those of all CTAs
    uint32_t sample[kTopkSample];       // the CTA's part; other CTAs read it
    uint32_t whole_sample[kTopkSample];
    uint32_t histogram[kTopkHistogramBins];
    uint32_t highest[TopkConfig::warps()];  // the largest key of each warp; other CTAs read them
    uint32_t above[TopkConfig::warps()], equal[TopkConfig::warps()];  // keys of each warp, compared with the least
    uint32_t totals[2];                                               // the CTA's; other CTAs read them
    uint32_t sums[TopkConfig::warps()];
    uint32_t list_count;    // of the CTA
    uint32_t lower, upper;  // of the bracket
    TopkFound found;
    TopkLeast least;
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
