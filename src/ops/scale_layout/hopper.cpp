// A change of scales' layout as a launch. Layer engine.
#include "ops/scale_layout/hopper.h"

#include <algorithm>
#include <bit>

namespace finegemm {

namespace {

using enum ScaleAccess;

constexpr uint32_t kMaxGrid = 1u << 20;  // CTAs, which share the tiles
/// Of an H100. With groups of K no more CTAs run than fit at once, so that each looks for them once or twice.
constexpr uint32_t kSms = 132;
constexpr int64_t kWordBytes = sizeof(uint32_t);

ScaleStrides strides_of(const ConstStack& x) {
    const ConstMatrix& m = x.matrix;
    return {.matrix = x.count > 1 ? x.stride * kWordBytes : 0,
            .row = m.rows > 1 ? m.row_stride * kWordBytes : kWordBytes,
            .col = m.cols > 1 ? m.col_stride * kWordBytes : 0};
}

/// Can four neighbours be accessed at once, wherever they begin at a multiple of four? `inner`: from one to the next.
bool takes_four(int64_t inner, int64_t outer, int64_t matrix, const void* data) {
    constexpr int64_t kBytes = 4 * kWordBytes;
    return inner == kWordBytes && (outer | matrix) % kBytes == 0 && reinterpret_cast<uintptr_t>(data) % kBytes == 0;
}

/// Four at once where there are no others. `tile_cols`: of a tile; `anywhere`: columns of a tile begin anywhere.
ScaleAccess access_of(const ConstStack& x, const ScaleStrides& strides, uint32_t tile_cols, bool anywhere) {
    const ConstMatrix& m = x.matrix;
    if (m.rows % 4 == 0 && takes_four(strides.row, strides.col, strides.matrix, m.data)) return FourRows;
    if (!anywhere && m.cols % 4 == 0 && tile_cols % 4 == 0 &&
        takes_four(strides.col, strides.row, strides.matrix, m.data))
        return FourCols;
    return Single;
}

/// Is a column packed into the lowest bytes? Then it is rounded, and its exponents have that place.
bool packs_a_column(const ScaleLayoutCall& call) {
    return call.transform() == ScaleTransform::Pack && call.sf.matrix.cols == 1 && !call.grouper().of_k();
}

ScaleLayoutConfig config_of(const ScaleLayoutCall& call) {
    using enum ScaleGroupKind;
    const ScaleGrouper groups = call.grouper();
    return {.transform = packs_a_column(call) ? ScaleTransform::Round : call.transform(),
            .groups = groups.of_k()      ? K
                      : groups.of_rows() ? Rows
                                         : None};
}

/// How each thread may store the four rows that it has loaded.
ScaleDirect direct_of(const ScaleLayoutCall& call) {
    const ScaleLayoutConfig config = config_of(call);
    const ConstMatrix& in = call.sf.matrix;
    const Matrix& out = call.out.matrix;
    const ScaleStrides from = strides_of(call.sf), to = strides_of(call.out);
    if (config.groups != ScaleGroupKind::None || config.stored() != 1 || call.row_shift() != 0 ||
        !takes_four(to.row, to.col, to.matrix, out.data))
        return ScaleDirect::None;
    if (out.rows % 4 == 0 && from.row < from.col && takes_four(from.row, from.col, from.matrix, in.data))
        return ScaleDirect::Columns;
    return config.transform == ScaleTransform::Pack && in.cols % 4 == 0 &&
                   takes_four(from.col, from.row, from.matrix, in.data)
               ? ScaleDirect::Rows
               : ScaleDirect::None;
}

/// Do rows lie one behind the other, but are no vectors, so that only a tile of them can be loaded as such? It has to
/// fit, and to have a word for each warp.
bool has_whole_rows(const ScaleLayoutCall& call) {
    const ScaleLayoutConfig config = config_of(call);
    const ConstMatrix& in = call.sf.matrix;
    const ScaleStrides from = strides_of(call.sf);
    return config.takes_rows() && call.row_shift() == 0 && in.cols > 7 * kExponentsPerWord &&
           in.cols % kExponentsPerWord != 0 && kWarpSize * in.cols <= config.tile_elements() &&
           from.col == kWordBytes && from.row == in.cols * kWordBytes && from.matrix % 16 == 0 &&
           strides_of(call.out).row == kWordBytes && reinterpret_cast<uintptr_t>(in.data) % 16 == 0;
}

/// What CTAs share, and how it is numbered (scale_origin, scale_piece).
struct Tiling {
    ScaleDirect direct = ScaleDirect::None;
    ScaleTile tile;
    int64_t across, down, tiles, pieces = 0;
};

Tiling tiles_of(const ScaleLayoutCall& call) {
    const ScaleLayoutConfig config = config_of(call);
    const auto rows = static_cast<uint32_t>(call.out.matrix.rows);
    const uint32_t words = ceil_div(static_cast<uint32_t>(call.out.matrix.cols), config.stored());
    const auto cols = static_cast<uint32_t>(std::max(call.sf.matrix.cols, call.out.matrix.cols));
    // A row that is repeated is loaded once: the words that are made of it count.
    const bool few_loads = call.row_shift() != 0 && config.transform == ScaleTransform::Pack && !call.grouper().of_k();
    const uint32_t most = has_whole_rows(call) ? words : config.max_words();
    const ScaleTile tile = few_loads ? scale_tile({}, rows, words, words, ScaleLayoutConfig{}.max_words())
                                     : scale_tile(config, rows, words, cols, most);
    const int64_t across = ceil_div(words, tile.words), down = ceil_div(rows, tile.rows);
    return {.tile = tile, .across = across, .down = down, .tiles = call.out.count * down * across};
}

/// Sixteen words of 64 rows, or as many fours of rows of fewer words. Of fewer than four lanes are left idle: loads of
/// all of them would take too many lines at once.
Tiling fours_of(const ScaleLayoutCall& call) {
    const auto rows = static_cast<uint32_t>(call.out.matrix.rows), words = static_cast<uint32_t>(call.out.matrix.cols);
    const uint32_t across = std::bit_ceil(std::clamp(words, 4u, 16u));
    const ScaleTile tile{.rows = 4 * config_of(call).threads() / across, .words = across};
    const int64_t right = ceil_div(words, across), down = ceil_div(rows, tile.rows);
    return {.direct = ScaleDirect::Rows,
            .tile = tile,
            .across = right,
            .down = down,
            .tiles = call.out.count * down * right};
}

Tiling tiling_of(const ScaleLayoutCall& call) {
    constexpr int64_t kMostPieces = 2'000'000'000;  // numbers of those behind the last one have 31 bits, too
    const ScaleLayoutConfig config = config_of(call);
    const ScaleDirect direct = direct_of(call);
    if (direct == ScaleDirect::Rows) return fours_of(call);
    const Matrix& out = call.out.matrix;
    const int64_t across = out.rows / 4, down = across * out.cols, pieces = call.out.count * down;
    if (direct == ScaleDirect::None || pieces > kMostPieces) return tiles_of(call);
    const int64_t of_cta = int64_t{config.threads()} * config.direct_pieces();
    return {.direct = direct,
            .tile = {},
            .across = across,
            .down = down,
            .tiles = (pieces + of_cta - 1) / of_cta,
            .pieces = pieces};
}

}  // namespace

int64_t scale_tiles(const ScaleLayoutCall& call) { return tiling_of(call).tiles; }

ScaleLayoutLaunch launch_of(const ScaleLayoutCall& call) {
    const ConstMatrix& in = call.sf.matrix;
    const Matrix& out = call.out.matrix;
    const Tiling tiling = tiling_of(call);
    ScaleLayoutConfig config = config_of(call);
    if (config.transform == ScaleTransform::Pack) config.direct = tiling.direct;
    const ScaleTile& tile = tiling.tile;
    const ScaleStrides from = strides_of(call.sf), to = strides_of(call.out);
    const bool repeats = call.row_shift() != 0, of_k = call.grouper().of_k();
    ScaleAccess load = repeats ? Single : access_of(call.sf, from, tile.words * config.loaded(), of_k);
    ScaleAccess store = access_of(call.out, to, tile.words * config.stored(), false);
    if (takes_four(to.row, to.col, to.matrix, out.data)) store = FourRows;  // the last rows are stored one by one
    const auto tiles = static_cast<uint32_t>(tiling.tiles);
    const bool one_each = config.direct != ScaleDirect::None;
    const uint32_t grid = one_each ? tiles : std::min(tiles, of_k ? kSms * config.ctas_per_sm() : kMaxGrid);
    ScaleRounding rounding = call.rounding();
    if (packs_a_column(call)) rounding.place = 0;
    const ScaleLayoutParams params{
        .in = static_cast<const uint8_t*>(in.data),
        .out = static_cast<uint8_t*>(out.data),
        .in_strides = from,
        .out_strides = to,
        .rows = static_cast<uint32_t>(out.rows),
        .in_cols = static_cast<uint32_t>(in.cols),
        .out_cols = static_cast<uint32_t>(out.cols),
        .row_shift = call.row_shift(),
        .columns = tiling.direct == ScaleDirect::Columns,
        .share = tiles / grid,
        .rest = tiles % grid,
        .across = Divider::by(static_cast<uint32_t>(tiling.across)),
        .down = Divider::by(static_cast<uint32_t>(tiling.down)),
        .tile = tile,
        .rounding = rounding,
        .pieces = static_cast<uint32_t>(tiling.pieces),
        .whole_rows = has_whole_rows(call),
        .load = scale_order(config, load, !repeats && from.row < from.col, tile, config.loaded(), from),
        .store = scale_order(config, store, to.row < to.col || store == FourRows, tile, config.stored(), to),
        .groups = call.grouper()};
    return {config, params, grid};
}

}  // namespace finegemm
