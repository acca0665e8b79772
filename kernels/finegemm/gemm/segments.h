// Segments: the parts of a tile's columns, each within one scale block of B. Layer gemm.
#pragma once

#include <finegemm/gemm/config.h>

namespace finegemm {

/// Segments of neighbouring columns that a tile has at most.
inline constexpr uint32_t kMaxSegments = 3;

/// Segments of a tile's columns. A tile whose width divides 128 has one; any other has one for each power of two in its
/// width, 8 the least and the widest first: 200 = 128 + 64 + 8. Segments lie apart in D (segment_col), each within one
/// scale block of B wherever the tile is. So a promotion knows the scale of each column at compile time; if all columns
/// were neighbours, the border could be anywhere, and choosing costs 14% of the time of a tile of 144.
struct Segments {
    uint32_t cols[kMaxSegments];  // 0: there are fewer

    /// Gates and ups are segments, even where those of a tile are within one block each. No loops: in a kernel all this
    /// is known at compile time, if the number of the segment is.
    FG_HD static constexpr Segments of(const GemmConfig& c) {
#ifndef FG_LACKS_PAIRS
        if (pairs_columns(c.finish)) return {{c.tile_n / 2, c.tile_n / 2, 0}};
#endif
        const uint32_t first = c.several_segments() ? widest(c.tile_n) : c.tile_n;
        const uint32_t second = widest(c.tile_n - first);
        return {{first, second, widest(c.tile_n - first - second)}};
    }
    FG_HD constexpr uint32_t count() const { return 1 + (cols[1] > 0) + (cols[2] > 0); }
    FG_HD constexpr uint32_t cols_before(uint32_t i) const {
        return (i > 0 ? cols[0] : 0) + (i > 1 ? cols[1] : 0) + (i > 2 ? cols[2] : 0);
    }
    /// Index of the segment that has column `col` of the tile.
    FG_HD constexpr uint32_t with(uint32_t col) const { return (col >= cols_before(1)) + (col >= cols_before(2)); }

private:
    FG_HD static constexpr uint32_t widest(uint32_t cols) {
        return cols >= 128 ? 128 : cols >= 64 ? 64 : cols >= 32 ? 32 : cols >= 16 ? 16 : cols >= 8 ? 8 : 0;
    }
};
FG_HD constexpr uint32_t n_segments(const GemmConfig& c) { return Segments::of(c).count(); }
FG_HD constexpr uint32_t segment_cols(const GemmConfig& c, uint32_t i) { return Segments::of(c).cols[i]; }
FG_HD constexpr uint32_t cols_before_segment(const GemmConfig& c, uint32_t i) { return Segments::of(c).cols_before(i); }
FG_HD constexpr uint32_t segment_of(const GemmConfig& c, uint32_t col) { return Segments::of(c).with(col); }

/// Segments of the columns of one WGMMA, and the one that has column `col` of it.
FG_HD constexpr uint32_t wgmma_segments(const GemmConfig& c) { return c.wgmmas_n() > 1 ? 1 : n_segments(c); }
FG_HD constexpr uint32_t wgmma_segment_of(const GemmConfig& c, uint32_t col) {
    return c.wgmmas_n() > 1 ? 0 : segment_of(c, col);
}

}  // namespace finegemm
