// Which rows of A and D, or which part of K, belong to which group of a grouped GEMM, as the device's memory says.
// Layer core. The kernel and the CPU backend read the same numbers by the same rules.
#pragma once

#include <finegemm/core/base.h>

namespace finegemm {

/// A half-open range of rows.
struct RowRange {
    uint32_t begin = 0, end = 0;
    FG_HD constexpr uint32_t size() const { return end - begin; }
    constexpr bool operator==(const RowRange&) const = default;
};

/// A half-open range of k-blocks.
struct KRange {
    uint32_t begin = 0, end = 0;
    FG_HD constexpr uint32_t size() const { return end - begin; }
    constexpr bool operator==(const KRange&) const = default;
};

/// Offsets, prefix sums, masks and indices in one form: spans of rows that have one group each. With `ends`, span g has
/// the rows of group g: it ends at row ends[g] and begins where the one before ended, rounded up to `alignment`;
/// stacked groups have matrices of their own and begin at row 0. With `indices`, a span is a block of `alignment` rows,
/// without the padding at its end. With neither, stacked groups have all rows.
struct GroupLayout {
    const int32_t* ends = nullptr;     // [groups], or null
    const int32_t* indices = nullptr;  // [rows], or null: the group of each row; any other number: of none
    uint32_t groups = 0;
    uint32_t rows = 0;            // of A; of each A where groups are stacked
    uint32_t alignment = 1;       // a power of two
    bool first_is_given = false;  // ends[-1] is the row at which group 0 begins
    bool stacked = false;

    static constexpr int32_t kAllRows = 0x7fffffff;  // as an end: of as many rows as there are

    /// Ranges of rows to divide into tiles.
    FG_HD constexpr uint32_t spans() const { return indices ? ceil_div(rows, alignment) : groups; }

    /// The end of a span, that of the one before it, and its group: all that is read for it.
    struct Ends {
        int32_t before = 0, end = 0;
        uint32_t group = 0;
    };
    FG_HD constexpr Ends ends_of(uint32_t i) const {
        if (indices) return ends_of_block(i);
        if (!ends) return {0, kAllRows, i};
        return {stacked || (i == 0 && !first_is_given) ? 0 : ends[static_cast<int64_t>(i) - 1], ends[i], i};
    }
    /// The rows of that span. Numbers that break the rules give rows that exist, or none.
    FG_HD constexpr RowRange range(Ends of) const {
        const uint32_t begin = stacked ? 0 : min((existing(of.before) + alignment - 1) & ~(alignment - 1), rows);
        return {begin, max(begin, existing(of.end))};
    }
    FG_HD constexpr RowRange span(uint32_t i) const { return range(ends_of(i)); }
    FG_HD constexpr bool is_group(int32_t index) const { return static_cast<uint32_t>(index) < groups; }

private:
    FG_HD constexpr uint32_t existing(int32_t row) const { return row < 0 ? 0 : min(static_cast<uint32_t>(row), rows); }

    /// Rows up to the first one of no group, by rounds of reads of which none waits for another; the last one is of the
    /// last row. Of a block without padding all is known after one round, of others of 128 rows after four.
    FG_HD constexpr Ends ends_of_block(uint32_t i) const {
        constexpr uint32_t kReads = 5;
        const uint32_t begin = i * alignment;
        const int32_t group = indices[begin];
        uint32_t known = begin, end = begin + min(alignment, rows - begin);
        while (known < end) {  // rows up to `known` have a group, those from `end` on have none
            const uint32_t last = end - known - 1, step = ceil_div(last, kReads - 1);
            uint32_t hits = 0;
            for (uint32_t read = 0; read < kReads; ++read)
                hits += is_group(indices[known + min(read * step, last)]) ? 1 : 0;
            if (hits < kReads) end = known + min(hits * step, last);
            known = hits == kReads ? end : hits > 0 ? known + (hits - 1) * step + 1 : known;
        }
        if (!is_group(group)) known = begin;
        return {static_cast<int32_t>(begin), static_cast<int32_t>(known), static_cast<uint32_t>(group)};
    }
};

/// The k-blocks of the groups of a K-grouped GEMM: group g has blocks offsets[g] / 128 up to offsets[g + 1] / 128.
struct KGroupLayout {
    const int32_t* offsets = nullptr;  // [groups + 1], in columns of A and B
    uint32_t groups = 0;
    uint32_t k_blocks = 0;  // of A and B

    /// Numbers that break the rules give blocks that exist, or none.
    FG_HD constexpr KRange range(int32_t begin, int32_t end) const {
        const uint32_t first = existing(begin);
        return {first, max(first, existing(end))};
    }
    FG_HD constexpr KRange group(uint32_t g) const { return range(offsets[g], offsets[g + 1]); }

private:
    FG_HD constexpr uint32_t existing(int32_t k) const {
        return k < 0 ? 0 : min(static_cast<uint32_t>(k) / kScaleBlock, k_blocks);
    }
};

}  // namespace finegemm
