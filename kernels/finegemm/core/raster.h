// Raster: the order in which tiles are visited. Layer core.
#pragma once

#include <finegemm/core/divide.h>

namespace finegemm {

struct TileCoord {
    uint32_t m = 0, n = 0;  // in tiles of this CTA
    constexpr bool operator==(const TileCoord&) const = default;
};

/// Tiles in bands of `band` rows: within a band the walk goes down the rows first, then one column on, so that the CTAs
/// that run together share rows of A and columns of B in L2. The host prepares the divisions.
struct Raster {
    uint32_t tiles_m = 0, tiles_n = 0;
    Divider per_band, band, last_band;  // tiles of a band; its height, and that of the last one, which may be lower

    /// Fewer than 2^31 tiles.
    FG_HD static constexpr Raster of(uint32_t tiles_m, uint32_t tiles_n, uint32_t band) {
        band = max(1, min(band, tiles_m));
        const uint32_t last = tiles_m % band;
        return {.tiles_m = tiles_m,
                .tiles_n = tiles_n,
                .per_band = Divider::by(max(1, band * tiles_n)),
                .band = Divider::by(band),
                .last_band = Divider::by(last == 0 ? band : last)};
    }

    constexpr bool operator==(const Raster&) const = default;

    FG_HD constexpr uint32_t size() const { return tiles_m * tiles_n; }
    FG_HD constexpr TileCoord at(uint32_t index) const {
        const uint32_t bands = per_band.quotient(index);
        const uint32_t first = bands * band.divisor, inside = index - bands * per_band.divisor;
        const Divider& height = first + band.divisor <= tiles_m ? band : last_band;
        const uint32_t column = height.quotient(inside);
        return {.m = first + inside - column * height.divisor, .n = column};
    }
    /// Tile `index` in the same order where only the device knows the height, `tiles_below` tiles: at least one.
    FG_HD constexpr TileCoord at(uint32_t index, uint32_t tiles_below) const {
        const uint32_t bands = per_band.quotient(index);
        const uint32_t first = bands * band.divisor, inside = index - bands * per_band.divisor;
        const uint32_t height = min(band.divisor, tiles_below - first);
        const uint32_t column = height == band.divisor ? band.quotient(inside) : inside / height;
        return {.m = first + inside - column * height, .n = column};
    }
};

}  // namespace finegemm
