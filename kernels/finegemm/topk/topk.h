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

/// What a CTA has of a row: whole sets of 32 columns, from a multiple of 32 on.
struct TopkPart {
    uint32_t first, count;
};

/// Columns of a part that are looked at before all of it is: kNear neighbours of each `stride`, each time at another
/// place of it, as what repeats with pages of keys would be no sample.
struct TopkSample {
    uint32_t stride, count;  // stride: a power of two

    static constexpr uint32_t kNear = 16, kLeastStride = 512;  // kNear: 64 bytes, less is not loaded
    FG_HD constexpr uint32_t column(uint32_t i) const {
        const uint32_t which = i / kNear;
        return which * stride + (which * 5 & (stride / kNear - 1)) * kNear + i % kNear;
    }
    /// How many numbers of a sample are above a bound that more than k numbers of the row are above, but for one row of
    /// a hundred thousand: 4.5 standard deviations for 64 expected ones, more for fewer. As rarely does a list of 4960
    /// have no room for what is above it.
    FG_HD constexpr uint32_t wanted(uint32_t k) const {
        const uint32_t expected = k / (stride / kNear);
        return expected + expected / 4 + 20;
    }
};

/// Everything about a kernel that is fixed when it is compiled.
struct TopkConfig {
    uint32_t ctas = 1;  // of the cluster that has a row
    bool few = false;   // for few rows, each of which a cluster keeps as a whole

    static constexpr uint32_t kMostCtas = 8, kCount = 7;  // ctas: powers of two, of few rows more than one
    FG_HD constexpr uint32_t index() const {
        return (few ? 3 : 0) + (ctas == 1 ? 0 : ctas == 2 ? 1 : ctas == 4 ? 2 : 3);
    }
    FG_HD constexpr uint32_t cluster() const { return ctas; }
    FG_HD static constexpr uint32_t threads() { return 512; }
    FG_HD static constexpr uint32_t warps() { return threads() / kWarpSize; }
    /// Clusters are for few rows, where latency counts: a CTA has more memory.
    FG_HD constexpr uint32_t ctas_per_sm() const { return ctas == 1 && !few ? 4 : 2; }
    /// Columns of a part that is kept as a whole; of another one, those that are listed as they may be selected.
    FG_HD constexpr uint32_t held() const { return few ? 16384 : 8192; }
    FG_HD constexpr uint32_t listed() const { return ctas == 1 ? 4960 : 8192; }
    FG_HD constexpr uint32_t held_columns() const { return ctas * held(); }
    /// Columns that a thread loads at once.
    FG_HD static constexpr uint32_t batch() { return 8; }
    FG_HD constexpr uint32_t smem_bytes() const;
    /// With so much no SM takes more CTAs of a launch than `share`: those that begin while SMs are busy with another
    /// launch would else crowd on the SMs that are free first.
    FG_HD constexpr uint32_t smem_bytes(uint32_t share) const;
    FG_HD constexpr uint32_t most_smem_bytes() const { return smem_bytes(1); }

    /// Columns of all parts but the last one.
    FG_HD constexpr uint32_t each(TopkWindow w) const {
        return align_up(ceil_div(w.end - w.begin / kWarpSize * kWarpSize, ctas), kWarpSize);
    }
    FG_HD constexpr TopkPart part(TopkWindow w, uint32_t rank) const {
        const uint32_t begin = w.begin / kWarpSize * kWarpSize, all = align_up(w.end - begin, kWarpSize);
        const uint32_t first = min(rank * each(w), all);
        return {begin + first, min(each(w), all - first)};
    }
    FG_HD constexpr bool holds(TopkWindow w) const { return each(w) <= held(); }
    /// The sample of a part of so many columns; all parts have one stride.
    FG_HD constexpr TopkSample sample(TopkWindow w, uint32_t count) const {
        uint32_t stride = TopkSample::kLeastStride;
        while (each(w) / stride * TopkSample::kNear > held()) stride *= 2;
        return {stride, count / stride * TopkSample::kNear};
    }
};

/// A number in order and its column: the larger, or of equal ones that of the lower column, is larger. 0 is none.
FG_HD constexpr uint64_t topk_ranked(uint32_t key, uint32_t column) { return uint64_t{key} << 32 | ~column; }
FG_HD constexpr uint32_t topk_column(uint64_t ranked) { return ~static_cast<uint32_t>(ranked); }

/// The value of a digit that was found: how many keys are above it, and how many have it.
struct TopkFound {
    uint32_t digit, before, count;
};

/// What is selected of a row: keys above `key`, and those that equal it up to column `last`.
struct TopkLeast {
    uint32_t key, last;
    FG_HD constexpr bool selects(uint32_t k, uint32_t column) const { return k > key || (k == key && column <= last); }
};

/// Columns of which it is marked at once which are selected: four words of a thread.
inline constexpr uint32_t kTopkMarked = 4 * TopkConfig::threads() * kWarpSize;

inline constexpr uint32_t kTopkGathered = 64;  // keys that are compared with each other, at most

/// What is needed until all that is selected has its place.
template <TopkConfig C>
struct TopkPlacing {
    static constexpr uint32_t kCounts = C.ctas == 1 ? 1 : 3;
    /// How many keys have each value of a digit, of those that agree in the digits before. Other CTAs read them, or add
    /// to the next ones, so that clusters have three by turns.
    uint32_t counts[kCounts][kTopkBins];
    union {
        uint32_t marks[kTopkMarked / kWarpSize];  // a bit for each column of a part that is not kept
        uint32_t selected[kTopkMost];             // columns of a part that is kept, in order
        uint64_t gathered[kTopkGathered];         // keys that agree in their upper bits, with their columns
    };
};

template <TopkConfig C>
struct TopkShared {
    uint32_t keys[2 * C.listed()];  // of a list: keys, first numbers, and behind C.listed() of these their columns
    union {
        TopkPlacing<C> placing;
        uint64_t ranked[kTopkMost];  // what has been selected, to be sorted
    };
    uint32_t histogram[kTopkHistogramBins];
    uint32_t sums[TopkConfig::warps()];
    uint32_t listed, total;  // numbers on the list, selected numbers; other CTAs read them
    uint32_t gathered;       // keys
    TopkFound found;
    TopkLeast least;
};
inline constexpr uint32_t kTopkFewListed = 2688;  // keys of a row that are listed, at most, with gaps between CTAs'

inline constexpr uint32_t kTopkFewBits = 8;  // of a digit that follows the first one

/// The value of a digit that was found, and of the keys of a CTA how many are above it, and how many have it.
struct TopkFewFound : TopkFound {
    uint32_t own_before, own_count;
};

/// Keys of a CTA above those that it lists, and how many it lists.
struct alignas(16) TopkFewListing {
    uint32_t above, listed;
};

/// Keys that are listed: of the CTA, and of all.
struct TopkFewLists {
    uint32_t own[kTopkFewListed], all[kTopkFewListed];
};

template <TopkConfig C>
struct TopkFewShared {
    uint32_t keys[C.held()];
    uint32_t counts[kTopkBins];   // of keys of the CTA
    uint32_t sums[2][kTopkBins];  // of all CTAs, by turns
    union {
        TopkFewLists lists;
        uint32_t histogram[kTopkHistogramBins];
        uint64_t ranked[kTopkMost];  // what has been selected, to be sorted
    };
    uint32_t listed_counts[3][1u << kTopkFewBits];  // of digits of keys that are listed
    TopkFewListing listings[C.ctas];
    uint64_t counted[2], told, sent;  // mbarriers: sums, by turns, listings and lists have come
    uint32_t warps[TopkConfig::warps()], own[TopkConfig::warps()];
    uint32_t listed, added;  // keys on the list; counts that are added in all CTAs
    TopkFewFound found;
};
FG_HD constexpr uint32_t TopkConfig::smem_bytes() const {
    return few         ? sizeof(TopkFewShared<TopkConfig{8, true}>)
           : ctas == 1 ? sizeof(TopkShared<TopkConfig{1}>)
                       : sizeof(TopkShared<TopkConfig{2}>);
}
FG_HD constexpr uint32_t TopkConfig::smem_bytes(uint32_t share) const {
    constexpr uint32_t kOfSm = 228 * 1024, kOfSystem = 1024;  // the latter for each CTA
    return share >= ctas_per_sm() ? smem_bytes() : max(smem_bytes(), kOfSm / (share + 1) - kOfSystem + 16);
}
static_assert(4 * (TopkConfig{1}.smem_bytes() + 1024) <= 228 * 1024 && 2 * TopkConfig{2}.smem_bytes() <= 226 * 1024 &&
              2 * (TopkConfig{2, true}.smem_bytes() + 1024) <= 228 * 1024);

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
    uint32_t early_windows;  // 1: windows are there before the launch before this one ends

    FG_HD constexpr TopkWindow window(uint32_t row) const {
        const uint32_t begin = starts ? clipped(starts[row]) : 0, end = ends ? end_of(row) : width;
        return begin < end ? TopkWindow{begin, end} : TopkWindow{};
    }

private:
    FG_HD constexpr uint32_t clipped(int32_t x) const { return x < 0 ? 0 : min(static_cast<uint32_t>(x), width); }
    FG_HD constexpr uint32_t end_of(uint32_t row) const {
        const uint32_t group = each > 1 ? row / each : row, i = row - group * each, behind = each - 1 - i;
        const int32_t* const of = ends + group * ends_stride;
        if (own_lengths) return min(clipped(of[i]), clipped(of[each - 1]));
        return *of > static_cast<int32_t>(behind) ? clipped(*of - static_cast<int32_t>(behind)) : 0;
    }
};

}  // namespace finegemm
