// A change of scales' layout as a launch. Layer engine.
#include "ops/scale_layout/hopper.h"

#include <algorithm>

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

/// Can each thread store the four rows that it has loaded? Then nothing goes through shared memory.
bool is_direct(const ScaleLayoutCall& call) {
    const ScaleLayoutConfig config = config_of(call);
    const ScaleStrides from = strides_of(call.sf), to = strides_of(call.out);
    return config.groups == ScaleGroupKind::None && config.stored() == 1 && call.row_shift() == 0 &&
           call.out.matrix.rows % 4 == 0 && takes_four(from.row, from.col, from.matrix, call.sf.matrix.data) &&
           takes_four(to.row, to.col, to.matrix, call.out.matrix.data);
}

/// Extents of the output in tiles.
struct Tiling {
    ScaleTile tile;
    uint32_t across, down;
};
Tiling tiling_of(const ScaleLayoutCall& call) {
    const ScaleLayoutConfig config = config_of(call);
    const auto rows = static_cast<uint32_t>(call.out.matrix.rows);
    const uint32_t words = ceil_div(static_cast<uint32_t>(call.out.matrix.cols), config.stored());
    const auto cols = static_cast<uint32_t>(std::max(call.sf.matrix.cols, call.out.matrix.cols));
    // A row that is repeated is loaded once: the words that are made of it count.
    const bool few_loads = call.row_shift() != 0 && config.transform == ScaleTransform::Pack && !call.grouper().of_k();
    const uint32_t most = is_direct(call) ? 16 / config.loaded() : config.max_words();  // then rows are contiguous
    const ScaleTile tile = few_loads ? scale_tile({}, rows, words, words, ScaleLayoutConfig{}.max_words())
                                     : scale_tile(config, rows, words, cols, most);
    return {.tile = tile, .across = ceil_div(words, tile.words), .down = ceil_div(rows, tile.rows)};
}

}  // namespace

int64_t scale_tiles(const ScaleLayoutCall& call) {
    const Tiling tiling = tiling_of(call);
    return call.out.count * tiling.down * tiling.across;
}

ScaleLayoutLaunch launch_of(const ScaleLayoutCall& call) {
    const ConstMatrix& in = call.sf.matrix;
    const Matrix& out = call.out.matrix;
    const ScaleLayoutConfig config = config_of(call);
    const auto [tile, across, down] = tiling_of(call);
    const ScaleStrides from = strides_of(call.sf), to = strides_of(call.out);
    const bool repeats = call.row_shift() != 0, of_k = call.grouper().of_k();
    ScaleAccess load = repeats ? Single : access_of(call.sf, from, tile.words * config.loaded(), of_k);
    ScaleAccess store = access_of(call.out, to, tile.words * config.stored(), false);
    if (takes_four(to.row, to.col, to.matrix, out.data)) store = FourRows;  // the last rows are stored one by one
    const auto tiles = static_cast<uint32_t>(scale_tiles(call));
    const uint32_t grid = std::min(tiles, of_k ? kSms * config.ctas_per_sm() : kMaxGrid);
    ScaleRounding rounding = call.rounding();
    if (packs_a_column(call)) rounding.place = 0;
    const ScaleOrder loads = scale_order(config, load, !repeats && from.row < from.col, tile, config.loaded(), from);
    const ScaleLayoutParams params{
        .in = static_cast<const uint8_t*>(in.data),
        .out = static_cast<uint8_t*>(out.data),
        .in_strides = from,
        .out_strides = to,
        .rows = static_cast<uint32_t>(out.rows),
        .in_cols = static_cast<uint32_t>(in.cols),
        .out_cols = static_cast<uint32_t>(out.cols),
        .row_shift = call.row_shift(),
        .direct = is_direct(call) && loads.down,
        .share = tiles / grid,
        .rest = tiles % grid,
        .across = Divider::by(across),
        .down = Divider::by(down),
        .tile = tile,
        .load = loads,
        .store = scale_order(config, store, to.row < to.col || store == FourRows, tile, config.stored(), to),
        .rounding = rounding,
        .groups = call.grouper()};
    return {config, params, grid};
}

}  // namespace finegemm
