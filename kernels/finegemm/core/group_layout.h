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

/// Offsets, prefix sums, masks and indices in one form. With `ends`, group g ends at row ends[g] and begins where the
/// one before ended, rounded up to `alignment`; stacked groups have matrices of their own and begin at row 0. With
/// `indices`, one span has all rows, and each tile of them the group that its first row names.
struct GroupLayout {
    const int32_t* ends = nullptr;     // [groups], or null
    const int32_t* indices = nullptr;  // [rows], or null: the group of each row; any other number: of none
    uint32_t groups = 0;
    uint32_t rows = 0;            // of A; of each A where groups are stacked
    uint32_t alignment = 1;       // a power of two
    bool first_is_given = false;  // ends[-1] is the row at which group 0 begins
    bool stacked = false;

    /// Ranges of rows to divide into tiles.
    FG_HD constexpr uint32_t spans() const { return indices ? 1 : groups; }

    /// Ends of a span and of the one before it: all that is read for it.
    struct Ends {
        int32_t before = 0, end = 0;
    };
    FG_HD constexpr Ends ends_of(uint32_t i) const {
        if (indices) return {0, static_cast<int32_t>(rows)};
        return {stacked || (i == 0 && !first_is_given) ? 0 : ends[static_cast<int64_t>(i) - 1], ends[i]};
    }
    /// The rows of that span. Numbers that break the rules give rows that exist, or none.
    FG_HD constexpr RowRange range(Ends of) const {
        const uint32_t begin = stacked ? 0 : min((existing(of.before) + alignment - 1) & ~(alignment - 1), rows);
        return {begin, max(begin, existing(of.end))};
    }
    FG_HD constexpr RowRange span(uint32_t i) const { return range(ends_of(i)); }
    FG_HD constexpr bool is_group(int32_t index) const { return index >= 0 && static_cast<uint32_t>(index) < groups; }

private:
    FG_HD constexpr uint32_t existing(int32_t row) const { return row < 0 ? 0 : min(static_cast<uint32_t>(row), rows); }
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
