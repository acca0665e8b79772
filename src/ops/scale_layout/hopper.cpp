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

/// Can four rows of a column be stored at once, wherever they begin at a multiple of four?
bool takes_four_rows(const ScaleStrides& strides, const void* out) {
    constexpr int64_t kBytes = 4 * kWordBytes;
    return strides.row == kWordBytes && (strides.col | strides.matrix) % kBytes == 0 &&
           reinterpret_cast<uintptr_t>(out) % kBytes == 0;
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
    const uint32_t unit = takes_four_rows(to, out.data) ? 4 : 1;
    const ScaleLayoutParams params{.in = static_cast<const uint8_t*>(in.data),
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
                                   .load = scale_order(config, load_down, 1, tile.rows, loaded),
                                   .store = scale_order(config, unit == 4 || to.row < to.col, unit, tile.rows, stored),
                                   .rounding = call.rounding(),
                                   .groups = call.grouper()};
    return {config, params, std::min(params.tiles, kMaxGrid)};
}

}  // namespace finegemm
