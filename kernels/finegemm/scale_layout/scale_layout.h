// Layouts of scales: f32 with other strides, four exponents (UE8M0) packed into a word, and the way back. The rules,
// the tiles of the kernel, and the launch's parameters. Layer scale_layout. CPU and GPU use the same functions.
#pragma once

#include <finegemm/core/divide.h>
#include <finegemm/core/fp8.h>

namespace finegemm {

/// What becomes of scales: words as they are, floats rounded up to powers of two, exponents of floats, or floats of
/// exponents.
enum class ScaleTransform : uint32_t { Copy, Round, Pack, Unpack };

/// Bytes of a word of packed exponents; its lowest one is the first column's.
inline constexpr uint32_t kExponentsPerWord = 4;

/// How a float becomes an exponent, as UE8M0 has it: by its bits, without sign and mantissa, or rounded up to a power
/// of two from 2^-126 to 2^127, where zero becomes the least and what is not finite the largest.
struct ScaleRounding {
    uint32_t least = 0, most = ~0u, add = 0;  // of the bits shifted left by one, which leaves the sign out
    uint32_t place = 23;                      // of the exponent in a float; 0: a column is packed

    FG_HD static constexpr ScaleRounding up() { return {.least = 2, .most = 254u << 24, .add = 0xfffffeu}; }
    /// The exponent is the highest byte.
    FG_HD constexpr uint32_t rounded(uint32_t bits) const { return min(max(bits + bits, least), most) + add; }
    FG_HD constexpr uint32_t exponent(uint32_t bits) const { return rounded(bits) >> 24; }
};

/// The bits of the float in byte `byte` of a word; 0 is 0.0, 255 infinity.
FG_HD constexpr uint32_t unpacked_scale(uint32_t word, uint32_t byte) { return (word >> 8 * byte & 0xffu) << 23; }

/// Which scales belong to groups, and how the groups' numbers say so.
enum class ScaleGrouping : uint32_t { None, Rows, KSizes, KPrefixSums };

/// Groups of rows: others become 0, whatever they hold. Groups of K, of which packing knows: each one's scales begin a
/// word. Numbers that break the rules never lead outside of the matrices.
struct ScaleGrouper {
    const int32_t* numbers = nullptr;  // [groups]
    uint32_t groups = 0;
    ScaleGrouping grouping = ScaleGrouping::None;
    Divider alignment;  // of where a group begins, behind the end of the one before
    Divider scale_k;    // k that a scale serves

    FG_HD constexpr bool of_rows() const { return grouping == ScaleGrouping::Rows; }
    FG_HD constexpr bool of_k() const {
        return grouping == ScaleGrouping::KSizes || grouping == ScaleGrouping::KPrefixSums;
    }
    FG_HD constexpr uint32_t number(uint32_t g) const { return numbers[g] < 0 ? 0 : static_cast<uint32_t>(numbers[g]); }
    /// Where prefix sums let group g begin.
    FG_HD constexpr uint32_t begin(uint32_t g) const {
        return g == 0 ? 0 : alignment.ceil_quotient(number(g - 1)) * alignment.divisor;
    }
    /// Columns of scales of a group of K.
    FG_HD constexpr uint32_t scales(uint32_t g) const {
        if (grouping == ScaleGrouping::KSizes) return scale_k.ceil_quotient(number(g));
        return scale_k.ceil_quotient(max(number(g), begin(g)) - begin(g));
    }
};

/// Columns of scales that a word takes: `count` from `first` on. None becomes 0.
struct WordSource {
    uint32_t first, count;
};

/// Bytes from one to the next.
struct ScaleStrides {
    int64_t matrix, row, col;
};

/// Which groups a kernel knows.
enum class ScaleGroupKind : uint32_t { None, Rows, K };

/// Does each thread store what it has loaded, four rows of a word, so that nothing goes through shared memory? They are
/// 16 bytes of each column of the input, or, of packing alone, of each row.
enum class ScaleDirect : uint32_t { None, Columns, Rows };

/// Everything about the kernel that is fixed when it is compiled.
struct ScaleLayoutConfig {
    ScaleTransform transform = ScaleTransform::Copy;
    ScaleGroupKind groups = ScaleGroupKind::None;  // K: only of packing

    /// Packs without groups, and threads store what they have loaded: kernels of their own, as small ones start
    /// 0.3 us earlier, of 6 for 12 MB.
    ScaleDirect direct = ScaleDirect::None;

    static constexpr uint32_t kCount = 11;  // kernels that there are
    /// Its place among them.
    FG_HD constexpr uint32_t index() const {
        if (direct != ScaleDirect::None) return 8 + static_cast<uint32_t>(direct);
        return groups == ScaleGroupKind::K ? 8 : static_cast<uint32_t>(transform) * 2 + static_cast<uint32_t>(groups);
    }
    constexpr bool operator==(const ScaleLayoutConfig&) const = default;

    FG_HD constexpr uint32_t threads() const { return 256; }
    /// So many must fit an SM: bounds registers. As many as spill nothing.
    FG_HD constexpr uint32_t ctas_per_sm() const {
        if (groups == ScaleGroupKind::None) return 8;
        if (groups == ScaleGroupKind::K || transform == ScaleTransform::Round) return 5;
        return transform == ScaleTransform::Copy ? 6 : 8;
    }
    /// Columns of the input, and of the output, to a word of the tile.
    FG_HD constexpr uint32_t loaded() const { return transform == ScaleTransform::Pack ? kExponentsPerWord : 1; }
    FG_HD constexpr uint32_t stored() const { return transform == ScaleTransform::Unpack ? kExponentsPerWord : 1; }
    /// Words of a row of a tile at most: 256 bytes of the wider side are contiguous where it is row-major.
    FG_HD constexpr uint32_t max_words() const { return 64 / max(loaded(), stored()); }
    /// Elements of the wider side that a thread has in flight together on their way to a tile.
    FG_HD constexpr uint32_t at_once() const { return takes_rows() ? 8 : 16; }
    /// Fours of rows of a thread that are in flight together where it stores what it has loaded.
    FG_HD constexpr uint32_t direct_pieces() const { return 4 / loaded(); }
    /// Are there tiles of whole rows that lie one behind the other?
    FG_HD constexpr bool takes_rows() const { return transform == ScaleTransform::Pack && groups != ScaleGroupKind::K; }
    /// Elements of a tile's wider side at most: sixteen for each thread.
    FG_HD constexpr uint32_t tile_elements() const { return 16 * threads(); }
};

/// A tile of words, in shared memory one column after the other, with which both sides are coalesced.
struct ScaleTile {
    uint32_t rows = 32, words = 1;  // rows: a power of two

    /// Where a word lies. Rows are exchanged by fours, so that four rows of a column stay together and the columns that
    /// a warp loads at once lie in eight groups of banks: neighbours, or every fourth column where lanes load four.
    FG_HD constexpr uint32_t at(const ScaleLayoutConfig& c, uint32_t word, uint32_t row) const {
        const uint32_t lane = c.loaded() == 1 ? word / 4 : word;
        return word * rows + (row ^ lane % 8 * 4);
    }
    constexpr bool operator==(const ScaleTile&) const = default;
};

/// For matrices of so many rows and words, and `cols` columns on their wider side: all words of a row, or about equal
/// parts of them, and as many rows as there is room for. `most`: words of a row.
FG_HD constexpr ScaleTile scale_tile(const ScaleLayoutConfig& c, uint32_t rows, uint32_t words, uint32_t cols,
                                     uint32_t most) {
    const uint32_t part = ceil_div(words, ceil_div(words, most));
    const uint32_t across = words <= most ? words : align_up(part, 4);
    const uint32_t elements = min(across * max(c.loaded(), c.stored()), cols);
    uint32_t down = kWarpSize;
    while (down < rows && 2 * down * max(across, elements) <= c.tile_elements()) down *= 2;
    return {.rows = down, .words = across};
}

/// What a thread loads or stores at once: the scales of a word, one by one; those of the words of four rows, of which
/// each column is 16 bytes; or four columns of a row, which are 16 bytes.
enum class ScaleAccess : uint32_t { Single, FourRows, FourCols };

/// The part of a tile that a thread loads or stores at once, with `Cols` columns to a word.
template <ScaleAccess Access, uint32_t Cols>
struct ScalePiece {
    static constexpr uint32_t kRows = Access == ScaleAccess::FourRows ? 4 : 1;
    static constexpr uint32_t kCols = Access == ScaleAccess::FourCols ? 4 : Cols;
    static constexpr uint32_t kWords = kCols / Cols;
};

/// How threads share a tile: neighbours have pieces below each other, or next to each other, `lanes` of them, and each
/// stays in its row, or column.
struct ScaleOrder {
    ScaleAccess access = ScaleAccess::Single;
    uint32_t down = 0, lanes_log2 = 0;
    int64_t lane_bytes = 0, outer_bytes = 0, step_bytes = 0;  // to the neighbour's piece; across lanes; to the next one

    FG_HD constexpr uint32_t lane(uint32_t thread) const { return thread & ((1u << lanes_log2) - 1); }
    FG_HD constexpr uint32_t outer(uint32_t thread) const { return thread >> lanes_log2; }
};

/// As many lanes as there are pieces. Down only where there are threads for all rows: each has several columns then,
/// and those in flight at once.
FG_HD constexpr ScaleOrder scale_order(const ScaleLayoutConfig& c, ScaleAccess access, bool down, const ScaleTile& tile,
                                       uint32_t cols_per_word, const ScaleStrides& strides) {
    const uint32_t rows = access == ScaleAccess::FourRows ? 4 : 1;
    const uint32_t words = access == ScaleAccess::FourCols ? 4 / cols_per_word : 1;
    const uint32_t rows_of_tile = tile.rows / rows;
    ScaleOrder order{.access = access, .down = down && rows_of_tile <= c.threads()};
    while (1u << order.lanes_log2 < (order.down ? rows_of_tile : ceil_div(tile.words, words))) ++order.lanes_log2;
    const int64_t below = rows * strides.row, beside = words * cols_per_word * strides.col;
    order.lane_bytes = order.down ? below : beside;
    order.outer_bytes = order.down ? beside : below;
    order.step_bytes = (c.threads() >> order.lanes_log2) * order.outer_bytes;
    return order;
}

struct ScaleLayoutParams {
    const uint8_t* in;
    uint8_t* out;
    ScaleStrides in_strides, out_strides;
    uint32_t rows, in_cols, out_cols;  // rows: of the output
    uint32_t row_shift;                // rows of the output to one of the input, as a power of two
    uint32_t columns;      // 1: a kernel that copies or rounds stores columns as ScaleDirect::Columns has it
    uint32_t share, rest;  // tiles of each CTA, and CTAs that have one more
    Divider across, down;  // of tiles: those of a row, and rows of a matrix; of pieces: of a column, and of a matrix
    ScaleTile tile;
    ScaleRounding rounding;
    uint32_t pieces;      // of all matrices; of Columns alone
    uint32_t whole_rows;  // 1: tiles have them, one behind the other in memory
    ScaleOrder load, store;
    ScaleGrouper groups;
};

/// The first row and word of a tile.
struct ScaleOrigin {
    uint32_t matrix, row, word;
};
/// Neighbouring tiles are next to each other.
FG_HD constexpr ScaleOrigin scale_origin_across(const ScaleLayoutParams& p, uint32_t tile) {
    const uint32_t band = p.across.quotient(tile), matrix = p.down.quotient(band);
    return {.matrix = matrix,
            .row = (band - matrix * p.down.divisor) * p.tile.rows,
            .word = (tile - band * p.across.divisor) * p.tile.words};
}
/// Neighbouring tiles are next to each other, or with groups of K below each other, so that they share words.
FG_HD constexpr ScaleOrigin scale_origin(const ScaleLayoutParams& p, uint32_t tile) {
    if (p.groups.of_k()) {
        const uint32_t part = p.down.quotient(tile);
        return {.matrix = 0, .row = (tile - part * p.down.divisor) * p.tile.rows, .word = part * p.tile.words};
    }
    return scale_origin_across(p, tile);
}

/// The first row and the word of four rows, of which neighbours have the next ones.
FG_HD constexpr ScaleOrigin scale_piece(const ScaleLayoutParams& p, uint32_t piece) {
    const uint32_t matrix = p.down.quotient(piece), in_matrix = piece - matrix * p.down.divisor;
    const uint32_t word = p.across.quotient(in_matrix);
    return {.matrix = matrix, .row = (in_matrix - word * p.across.divisor) * 4, .word = word};
}

/// The columns that word `word` of a group takes, which has `scales` of them from `first` on.
FG_HD constexpr WordSource group_word_source(uint32_t first, uint32_t scales, uint32_t word) {
    return {.first = first + word * kExponentsPerWord,
            .count = min(scales - word * kExponentsPerWord, kExponentsPerWord)};
}

}  // namespace finegemm
