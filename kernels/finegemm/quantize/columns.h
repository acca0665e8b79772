// Quantisation of columns, which become rows: configuration of its kernels, groups and tiles. Layer quantize.
#pragma once

#include <finegemm/core/group_layout.h>
#include <finegemm/quantize/quantize.h>

namespace finegemm {

/// Groups of rows of x. As columns of q each begins at a multiple of 128, behind the group before it.
struct ColumnGroups {
    const int32_t* offsets = nullptr;  // [groups + 1], in rows of x; null: all rows are one group
    int32_t* begins = nullptr;         // [groups + 1], in columns of q: is written
    uint32_t groups = 0;

    /// Numbers that break the rules give rows that exist, or none.
    FG_HD constexpr RowRange group(uint32_t g, uint32_t rows) const {
        const uint32_t begin = existing(offsets[g], rows);
        return {begin, max(begin, existing(offsets[g + 1], rows))};
    }

private:
    FG_HD static constexpr uint32_t existing(int32_t row, uint32_t rows) {
        return row < 0 ? 0 : min(static_cast<uint32_t>(row), rows);
    }
};

/// The rows of a group that become its block `block` of columns.
FG_HD constexpr RowRange rows_of_block(RowRange group, uint32_t block) {
    const uint32_t begin = group.begin + min(block * kScaleBlock, group.size());
    return {begin, begin + min(kScaleBlock, group.end - begin)};
}

/// Everything about the kernel that is fixed when it is compiled.
struct QuantizeColumnsConfig {
    QuantizeInput input = QuantizeInput::BF16;
    QuantizeCodes codes = QuantizeCodes::E4M3;

    static constexpr uint32_t kCount = 6;  // kernels that there are: of FP8
    /// Its place among them.
    FG_HD constexpr uint32_t index() const { return static_cast<uint32_t>(codes) * 3 + static_cast<uint32_t>(input); }
    constexpr bool operator==(const QuantizeColumnsConfig&) const = default;

    /// The kernel for 128x128 blocks, whose way through shared memory is this one's, too.
    FG_HD constexpr QuantizeConfig tile() const { return {input, true, codes}; }
    FG_HD constexpr uint32_t threads() const { return tile().threads(); }
    /// So many must fit an SM: bounds registers to 64 a thread, of which 32 have the tile.
    FG_HD constexpr uint32_t ctas_per_sm() const { return tile().ctas_per_sm(); }
};

struct QuantizeColumnsParams {
    QuantizeParams rows;  // with x. Without `q` rows are not written
    uint8_t* q;           // [cols of x, cols]
    float* scales;
    int64_t q_row_stride, scale_row_stride, scale_col_stride;
    uint32_t cols;       // of q: a multiple of 16
    uint32_t cta_tiles;  // neighbours in a row of tiles that a CTA does one after the other
    ColumnGroups groups;

    /// Tiles in a row of x; there is always a tile, which has what groups' beginnings are written by.
    FG_HD constexpr uint32_t tiles_across() const { return max(1, ceil_div(rows.cols, kScaleBlock)); }
    FG_HD constexpr TransposedCodes columns() const { return {q, q_row_stride, rows.cols, cols}; }
    FG_HD constexpr uint32_t tiles_down() const { return max(1, ceil_div(cols, kScaleBlock)); }
    /// Parts of a row of tiles, each a CTA's.
    FG_HD constexpr uint32_t parts_across() const { return ceil_div(tiles_across(), cta_tiles); }
    FG_HD constexpr uint64_t parts() const { return static_cast<uint64_t>(tiles_down()) * parts_across(); }
};

}  // namespace finegemm
