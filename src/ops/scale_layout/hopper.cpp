// A change of scales' layout as a launch. Layer engine.
#include "ops/scale_layout/hopper.h"

#include <algorithm>

namespace finegemm {

namespace {

/// CTAs of a kernel, which then walks over its tiles.
constexpr uint32_t kMaxGrid = 1u << 20;
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

ScaleLayoutConfig config_of(const ScaleLayoutCall& call) {
    return {.transform = call.transform(), .grouped = call.groups.form != ScaleGroupForm::None};
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
    const ScaleTile tile = scale_tile(config, rows, words);
    return {.tile = tile, .across = ceil_div(words, tile.words), .down = ceil_div(rows, tile.rows)};
}

}  // namespace

int64_t scale_tiles(const ScaleLayoutCall& call) {
    const Tiling tiling = tiling_of(call);
    return call.out.count * tiling.down * tiling.across;
}

ScaleLayoutLaunch launch_of(const ScaleLayoutCall& call) {
    constexpr uint32_t kFewCols = 8;  // below it threads that share columns have more loads in flight
    const ConstMatrix& in = call.sf.matrix;
    const Matrix& out = call.out.matrix;
    const ScaleLayoutConfig config = config_of(call);
    const auto [tile, across, down] = tiling_of(call);
    const ScaleStrides from = strides_of(call.sf), to = strides_of(call.out);
    const uint32_t loaded = tile.words * config.loaded(), stored = tile.words * config.stored();
    const bool load_down = from.row < from.col && loaded >= kFewCols;
    const bool load_four = !config.grouped && !load_down && in.cols % 4 == 0 && loaded % 4 == 0 &&
                           takes_four(from.col, from.row, from.matrix, in.data);
    const bool store_four = takes_four(to.row, to.col, to.matrix, out.data);
    const ScaleLayoutParams params{
        .in = static_cast<const uint8_t*>(in.data),
        .out = static_cast<uint8_t*>(out.data),
        .in_strides = from,
        .out_strides = to,
        .rows = static_cast<uint32_t>(out.rows),
        .in_cols = static_cast<uint32_t>(in.cols),
        .out_cols = static_cast<uint32_t>(out.cols),
        .row_shift = call.row_shift(),
        .tiles = static_cast<uint32_t>(scale_tiles(call)),
        .across = Divider::by(across),
        .down = Divider::by(down),
        .tile = tile,
        .load = scale_order(config, load_down, load_four ? 4 : 1, tile.rows, loaded),
        .store = scale_order(config, store_four || to.row < to.col, store_four ? 4 : 1, tile.rows, stored),
        .rounding = call.rounding(),
        .groups = call.grouper()};
    return {config, params, std::min(params.tiles, kMaxGrid)};
}

}  // namespace finegemm
