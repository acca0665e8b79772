// The plan of shared memory, and the boxes that TMA moves there.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include <finegemm/core/fragment.h>
#include <finegemm/gemm/boxes.h>

#include "support/configs.h"

namespace finegemm {
namespace {

struct Object {
    uint32_t begin, bytes, alignment;
};

std::vector<Object> objects(const GemmConfig& c) {
    const SmemPlan p = kernel_plan(c).smem;
    std::vector<Object> list;
    const auto add = [&list](uint32_t at, uint32_t count, uint32_t pitch, uint32_t bytes, uint32_t alignment) {
        for (uint32_t i = 0; i < count; ++i) list.push_back({at + i * pitch, bytes, alignment});
    };
    add(p.a, c.stages, p.a_stage, c.tile_m * 128, 1024);  // swizzle atoms
    add(p.b, c.stages, p.b_stage, c.tile_n * 128, 1024);
    const uint32_t shifted = c.row_groups() ? kScalePiece : 0;  // floats that the last row may lie further on
    const uint32_t scale = kernel_plan(c).tensor_core_scales() ? 16 : 4;
    add(p.sfa, c.stages, p.sfa_stage, (c.tile_m + shifted) * scale, 16);  // written sixteen bytes at a time
    const bool rows = c.row_b_scales();                                   // written sixteen bytes at a time, too
    add(p.sfb, c.stages, p.sfb_stage, (rows ? c.tile_n : 2) * scale, rows ? 16 : 4);
    if (kernel_plan(c).tensor_core_scales()) add(p.zeros, c.math_warpgroups, 64 * 16, 64 * 16, 16);
    if (c.grouped()) add(p.tiles, c.stages, p.tile_stage, sizeof(Tile), alignof(Tile));
    add(p.full, c.stages, 8, 8, 8);
    add(p.empty, c.stages, 8, 8, 8);
    if (c.k_slices() > 1) add(p.slice_sums_full, 1, 8, 8, 8);
    if (c.k_splits() > 1) {
        const uint32_t bytes = c.k_splits() * c.rows_per_warpgroup() * split_pitch(c) * 4;
        add(p.partials, c.row_warpgroups(), p.partials_warpgroup, bytes, 16);
        add(p.partials_full, c.row_warpgroups(), 8, 8, 8);
    } else if (kernel_plan(c).tma_store()) {
        const uint32_t bytes = c.output == Output::F32 ? c.tile_n * 4 : cols_through_shared(c) * 2;
        add(p.d, c.math_warpgroups * 4, p.d_warp, c.rows_per_warpgroup() / 4 * bytes, 1024);  // swizzle atoms
        if (kernel_plan(c).loads_source()) add(p.d_full, c.math_warpgroups * 4, 8, 8, 8);
    } else if (kernel_plan(c).store == Store::Strip) {
        add(p.d, c.row_warpgroups() * 4, p.d_warp, 16 * strip_pitch(c), 16);
    }
    if (c.d_sharers() > 1) {
        const uint32_t turns = c.math_warpgroups * 4 * kLargestTurns;
        add(p.largest, turns, kWarpRows * 4, kWarpRows * 4, 4);
        add(p.largest_full, turns, 8, 8, 8);
    }
    return list;
}

void expect_sound(const GemmConfig& c) {
    SCOPED_TRACE(test::describe(c));
    std::vector<Object> list = objects(c);
    std::ranges::sort(list, {}, &Object::begin);
    uint32_t end = 0;
    for (const Object& o : list) {
        EXPECT_EQ(o.begin % o.alignment, 0u);
        EXPECT_GE(o.begin, end) << "overlaps the object before";
        end = o.begin + o.bytes;
    }
    EXPECT_LE(end + 1024, kernel_plan(c).smem.total) << "the kernel may skip up to 1023 bytes to align its base";
    EXPECT_EQ(kernel_plan(c).smem.total % 16, 0u);
}

TEST(SmemPlan, ObjectsAreAlignedApartAndInside) {
    for (const GemmConfig& c : test::kConfigs) expect_sound(c);
    for (const uint32_t warpgroups : {1u, 2u, 3u})  // two CTAs have the columns of a scale of D
        for (const Grouping grouping : {Grouping::None, Grouping::Rows})
            expect_sound({.tile_m = warpgroups * 64,
                          .tile_n = 128,
                          .stages = 4,
                          .math_warpgroups = warpgroups,
                          .cluster = 2,
                          .cluster_use = ClusterUse::ShareA,
                          .grouping = grouping,
                          .finish = Finish::Gated});
    for (uint32_t warpgroups = 1; warpgroups <= 3; ++warpgroups)
        for (uint32_t rows : {32u, 64u, 128u})
            for (uint32_t tile_n = 16; tile_n <= 256 && warpgroups * rows % 64 == 0; tile_n += 16)
                for (uint32_t splits : {1u, 2u, 3u, 5u, 8u})
                    expect_sound({.tile_m = warpgroups * rows,
                                  .tile_n = tile_n,
                                  .stages = 3 + tile_n % 5,
                                  .math_warpgroups = warpgroups,
                                  .cluster = splits,
                                  .cluster_use = splits > 1 ? ClusterUse::SplitK : ClusterUse::None});
}

TEST(SmemPlan, TheConfigurationsOfTheTestsFitAnSm) {
    for (const GemmConfig& c : test::kConfigs)
        EXPECT_LE(kernel_plan(c).smem.total, 232448 / c.ctas_per_sm) << test::describe(c);
}

TEST(SmemPlan, SplitsOfATileCoverItsColumns) {
    for (uint32_t tile_n = 16; tile_n <= 256; tile_n += 16)
        for (uint32_t splits = 2; splits <= 8; ++splits) {
            const GemmConfig c{.tile_n = tile_n, .cluster = splits, .cluster_use = ClusterUse::SplitK};
            EXPECT_GE(split_cols(c) * splits, tile_n);
            EXPECT_EQ(split_cols(c) % 8, 0u);
            EXPECT_GE(split_pitch(c), split_cols(c));
            EXPECT_EQ(split_pitch(c) % 4, 0u) << "rows are read sixteen bytes at a time";
        }
}

TEST(TmaBox, AllBoxesOfAllConfigurationsAreLegal) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        for (uint32_t extent : {1u, 7u, 8u, 9u, 63u, 64u, 100u, 255u, 4096u})
            for (const LoadBoxes& boxes : {a_boxes(c, extent), b_boxes(c, extent)}) {
                EXPECT_TRUE(legal(boxes.whole)) << extent;
                EXPECT_TRUE(legal(boxes.last)) << extent;
            }
    }
}

TEST(TmaBox, SharersTogetherLoadTheWholeTile) {
    for (const GemmConfig& c : test::kConfigs)
        for (uint32_t extent : {1u, 64u, 100u, 4096u}) {
            const LoadBoxes a = a_boxes(c, extent), b = b_boxes(c, extent);
            EXPECT_EQ(a.whole.rows * c.a_sharers(), c.tile_m);
            EXPECT_EQ(b.whole, b_segment_box(c, 0));
            uint32_t rows = 0;
            bool last_is_whole = false;
            for (uint32_t segment = 0; segment < n_segments(c); ++segment) {
                rows += b_segment_box(c, segment).rows * c.b_sharers();
                last_is_whole = last_is_whole || b.last == b_segment_box(c, segment);
            }
            EXPECT_EQ(rows, c.tile_n);
            EXPECT_TRUE(c.a_sharers() == 1 || a.last == a.whole);
            EXPECT_TRUE(c.b_sharers() == 1 || last_is_whole);
        }
}

TEST(TmaBox, TilesBringTheRowsThatExistAndNoOthers) {
    for (uint32_t tile : {64u, 128u, 144u, 192u})
        for (uint32_t extent = 1; extent <= 600; ++extent) {
            const uint32_t tiles = ceil_div(extent, tile);
            const LoadBoxes boxes = load_boxes(Operand{}, extent, tile, 1);
            EXPECT_EQ((tiles - 1) * boxes.whole.rows + boxes.last.rows, extent) << tile;
            EXPECT_EQ(boxes.last.rows, rows_of_last_tile(extent, tile, 1));
        }
}

TEST(TmaBox, LoadsOfBBringTheColumnsThatExistAndNoOthers) {
    for (const uint32_t tile_n : {40u, 64u, 96u, 112u, 136u, 144u, 160u, 176u, 192u, 200u, 224u, 256u})
        for (uint32_t n = 8; n <= 1400; n += 8) {
            const GemmConfig c{.tile_n = tile_n};
            const Raster order = raster_of_columns(c, n);
            uint32_t loaded = 0;  // as rows_of_segment of the kernel
            for (uint32_t i = 0; i < order.tiles_n; ++i)
                for (uint32_t segment = 0; segment < n_segments(c); ++segment) {
                    const uint32_t first = segment_col(c, order, i * segment_cols(c, 0), segment),
                                   rows = segment_cols(c, segment);
                    if (first < n) loaded += first + rows > n ? b_rows_of_last(c, n) : rows;
                }
            EXPECT_EQ(loaded, n) << tile_n;
            EXPECT_EQ(b_boxes(c, n).last.rows, b_rows_of_last(c, n));
        }
}

TEST(Strip, ColumnsDivideEveryTile) {
    for (const uint32_t tile_n : {16u, 32u, 40u, 48u, 64u, 80u, 96u, 112u, 128u, 144u, 160u, 176u, 192u, 200u, 256u}) {
        const GemmConfig c{.tile_n = tile_n};
        EXPECT_LE(kernel_plan(c).strip_cols, 64u) << tile_n;
        for (uint32_t segment = 0; segment < n_segments(c); ++segment) {
            if (cols_before_segment(c, segment) == cols_through_shared(c)) continue;  // goes straight to D
            const uint32_t cols = min(kernel_plan(c).strip_cols, segment_cols(c, segment));
            EXPECT_EQ(segment_cols(c, segment) % cols, 0u) << tile_n;
            EXPECT_EQ(cols % 16, 0u) << "stmatrix writes sixteen columns";
        }
    }
    // Narrower where the ring leaves no room for the widest.
    const GemmConfig roomy{.tile_m = 64, .tile_n = 80, .stages = 10}, full{.tile_m = 64, .tile_n = 80, .stages = 12};
    EXPECT_EQ(kernel_plan(roomy).strip_cols, 64u);
    EXPECT_EQ(kernel_plan(full).strip_cols, 32u);
    EXPECT_LE(kernel_plan(full).smem.total, kMostShared);
    EXPECT_GT(decide::smem(full, Store::Strip, 64).total, kMostShared);
    for (uint32_t tile_n = 16; tile_n <= 256; tile_n += 8) {
        const GemmConfig f32{.tile_n = tile_n, .b = kRowScaled, .output = Output::F32};
        EXPECT_EQ(kernel_plan(f32).strip_cols, 32u) << "rows of 128 bytes, but of the last one";
    }
}

TEST(Strip, EachPieceHasAnOffsetOfItsOwnAndALaneThatTakesIt) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        const uint32_t bytes = c.output == Output::F32 ? 4 : 2;
        std::set<uint32_t> widths;
        for (uint32_t segment = 0; segment < n_segments(c); ++segment)
            for (uint32_t first = 0; first < segment_cols(c, segment); first += kernel_plan(c).strip_cols)
                widths.insert(min(kernel_plan(c).strip_cols, segment_cols(c, segment) - first));
        for (const uint32_t cols : widths) {
            if (c.output == Output::BF16 && cols == 8) continue;  // goes straight to D
            std::set<uint32_t> offsets;
            for (uint32_t i = 0; i < strip_pieces(c, cols); ++i)
                for (uint32_t lane = 0; lane < 32; ++lane) {
                    const RowCol piece = strip_piece(c, cols, lane, i);
                    EXPECT_LT(piece.row, 16u);
                    EXPECT_LT(piece.col, cols);
                    const uint32_t at = strip_offset(c, strip_pitch(c), piece);
                    EXPECT_EQ(at % 16, 0u);
                    EXPECT_LE(at + 16, 16 * strip_pitch(c));
                    EXPECT_TRUE(offsets.insert(at).second) << "two pieces at one offset";
                }
            EXPECT_EQ(offsets.size() * 16, 16 * cols * bytes) << "all of sixteen rows";
        }
    }
}

TEST(DPanels, AreTheColumnsOfATileOnceEachInsideOfASegment) {
    for (const GemmConfig& c : test::kConfigs) {
        if (!kernel_plan(c).tma_store() || c.output == Output::F32) continue;
        SCOPED_TRACE(test::describe(c));
        uint32_t next = 0, of_width[kPanelWidths] = {};
        for (uint32_t i = 0; i < d_panels(c); ++i) {
            const DPanel panel = d_panel(c, i);
            EXPECT_EQ(panel.first, next);
            ASSERT_LT(panel.width, kPanelWidths);
            next = panel.first + panel_width(panel.width);
            ++of_width[panel.width];
            EXPECT_EQ(segment_of(c, panel.first), segment_of(c, next - 1))
                << "the columns of a panel are neighbours in D";
        }
        EXPECT_EQ(next, cols_through_shared(c));
        for (uint32_t width = 0; width < kPanelWidths; ++width)
            EXPECT_EQ(of_width[width], panels_of_width(c, width)) << "a width without a map would have a panel";
    }
}

TEST(DPanels, LieAsTmaReadsThem) {
    for (const GemmConfig& c : test::kConfigs) {
        if (!kernel_plan(c).tma_store() || c.output == Output::F32) continue;
        SCOPED_TRACE(test::describe(c));
        std::set<uint32_t> offsets;
        for (uint32_t i = 0; i < d_panels(c); ++i) {
            const DPanel panel = d_panel(c, i);
            const uint32_t cols = panel_width(panel.width), begin = kWarpRows * panel.first * 2;
            EXPECT_TRUE(legal(d_box(panel.width)));
            for (uint32_t row = 0; row < kWarpRows; ++row)
                for (uint32_t col = 0; col < cols; col += 8) {
                    const uint32_t at = begin + panel_offset(cols, {.row = row, .col = col});
                    EXPECT_EQ(at, swizzled(begin + (row * cols + col) * 2, d_box(panel.width).swizzle));
                    EXPECT_TRUE(offsets.insert(at).second) << "two pieces at one offset";
                    EXPECT_LE(at + 16, panels_bytes(c));
                }
        }
        EXPECT_EQ(offsets.size() * 16, kWarpRows * cols_through_shared(c) * 2) << "all of sixteen rows";
        EXPECT_EQ(panels_bytes(c) % 1024, 0u) << "where the pattern begins anew";
    }
}

TEST(DPanels, AreWrittenWithoutBankConflicts) {
    for (uint32_t width = 0; width < kPanelWidths; ++width)
        for (uint32_t pair = 0; pair < panel_width(width) / 16; ++pair)
            for (uint32_t matrix = 0; matrix < 4; ++matrix) {  // stmatrix writes eight rows of sixteen bytes at once
                std::set<uint32_t> banks;
                for (uint32_t row = 0; row < 8; ++row)
                    banks.insert(panel_offset(panel_width(width), stmatrix_piece(matrix * 8 + row, pair)) / 16 % 8);
                EXPECT_EQ(banks.size(), 8u) << panel_width(width) << " columns";
            }
}

TEST(BoxesOfF32, LieAsTmaReadsThemAndHaveEachElementOnce) {
    for (const GemmConfig& c : test::kConfigs) {
        if (!kernel_plan(c).loads_source() || c.output != Output::F32) continue;
        SCOPED_TRACE(test::describe(c));
        EXPECT_EQ(d_panels(c) * kF32PanelBytes, panels_bytes(c));
        std::set<uint32_t> offsets;
        for (uint32_t lane = 0; lane < kWarpSize; ++lane)
            for (uint32_t step = 0; step < c.tile_n / 2; ++step) {
                const RowCol at = wgmma_accumulator(lane, f32_panel_register(lane, step));
                const uint32_t panel = at.col / 32 * kF32PanelBytes, offset = f32_panel_offset(at);
                EXPECT_EQ(offset, panel + swizzled((at.row * 32 + at.col % 32) * 4, kF32DBox.swizzle));
                EXPECT_TRUE(offsets.insert(offset).second) << "two elements at one offset";
            }
        EXPECT_EQ(offsets.size() * 4, panels_bytes(c)) << "all of sixteen rows";
    }
    EXPECT_TRUE(legal(kF32DBox));
}

TEST(DPanels, AreAllOfATileButASegmentOfEightColumns) {
    for (const uint32_t tile_n : {40u, 88u, 136u, 168u, 200u}) {
        const GemmConfig c{.tile_n = tile_n};
        const uint32_t last = n_segments(c) - 1;
        EXPECT_EQ(segment_cols(c, last), 8u) << tile_n;
        EXPECT_EQ(cols_before_segment(c, last), cols_through_shared(c)) << tile_n;
        EXPECT_EQ(cols_through_shared(c) + 8, tile_n);
    }
    for (uint32_t tile_n = 16; tile_n <= 256; tile_n += 16) EXPECT_EQ(cols_through_shared({.tile_n = tile_n}), tile_n);
}

TEST(StagesTiles, OnlyWhereThereIsRoomForATileAndItIsWorthIt) {
    static_assert(kernel_plan({.tile_m = 128, .tile_n = 160, .stages = 5}).tma_store());
    static_assert(kernel_plan({.tile_m = 192, .tile_n = 128, .stages = 4, .math_warpgroups = 3}).tma_store());
    static_assert(kernel_plan({.tile_m = 128, .tile_n = 200, .stages = 4}).tma_store());
    static_assert(!kernel_plan({.tile_m = 128, .tile_n = 224, .stages = 4}).tma_store(), "47 KB are left of 56");
    static_assert(!kernel_plan({.tile_m = 128, .tile_n = 192, .stages = 5}).tma_store(), "25 KB are left of 48");
    static_assert(
        !kernel_plan({.tile_m = 64, .tile_n = 64, .stages = 6, .math_warpgroups = 1, .ctas_per_sm = 2}).tma_store());
    static_assert(!kernel_plan({.tile_m = 64, .tile_n = 64, .stages = 10, .math_warpgroups = 2}).tma_store(),
                  "k-slices");
    static_assert(kernel_plan({.tile_m = 128, .tile_n = 64, .stages = 6, .grouping = Grouping::Rows}).tma_store());
    static_assert(
        !kernel_plan({.tile_m = 128, .tile_n = 64, .stages = 6, .cluster = 2, .cluster_use = ClusterUse::SplitK})
             .tma_store());
}

/// The banks of four bytes that some lanes write or read at once, and how often the busiest one of them.
uint32_t busiest_bank(const std::vector<uint32_t>& addresses, uint32_t bytes) {
    uint32_t touched[32] = {};
    for (const uint32_t at : addresses)
        for (uint32_t word = at / 4; word < (at + bytes) / 4; ++word) ++touched[word % 32];
    return *std::ranges::max_element(touched);
}

TEST(LoadsSource, WhereAStageLessLeavesRoomForAWholeTileInF32) {
    constexpr auto f32 = [](uint32_t tile_n, uint32_t stages, Grouping grouping = Grouping::None) {
        return GemmConfig{
            .tile_n = tile_n, .stages = stages, .grouping = grouping, .b = kRowScaled, .output = Output::F32};
    };
    static_assert(kernel_plan(f32(128, 4)).loads_source() && !kernel_plan(f32(128, 5)).loads_source());
    static_assert(kernel_plan(f32(128, 4, Grouping::K)).loads_source());
    static_assert(kernel_plan(f32(64, 7)).loads_source());
    static_assert(!kernel_plan(f32(192, 4)).loads_source());
    static_assert(!kernel_plan(f32(112, 4)).loads_source(), "panels have 32 columns");
    static_assert(!kernel_plan({.tile_n = 128, .stages = 4, .b = kRowScaled}).loads_source(), "bf16 is never added to");
}

TEST(BoxesOfF32, AreWrittenWithoutBankConflicts) {
    for (uint32_t step = 0; step < 64; ++step) {  // a warp writes four bytes of each lane at once
        std::vector<uint32_t> addresses;
        for (uint32_t lane = 0; lane < kWarpSize; ++lane)
            addresses.push_back(f32_panel_offset(wgmma_accumulator(lane, f32_panel_register(lane, step))));
        EXPECT_EQ(busiest_bank(addresses, 4), 1u) << "step " << step;
    }
}

TEST(Strip, OfFloatsIsWrittenAndReadWithoutBankConflicts) {
    for (const uint32_t tile_n : {32u, 64u, 128u, 192u}) {
        const GemmConfig c{.tile_n = tile_n, .b = kRowScaled, .output = Output::F32};
        for (uint32_t r = 0; r < kernel_plan(c).strip_cols / 2; r += 2)
            for (uint32_t half = 0; half < 2; ++half) {  // sixteen lanes write eight bytes each at once
                std::vector<uint32_t> addresses;
                for (uint32_t lane = half * 16; lane < half * 16 + 16; ++lane)
                    addresses.push_back(strip_offset(c, strip_pitch(c), wgmma_accumulator(lane, r)));
                EXPECT_EQ(busiest_bank(addresses, 8), 1u) << tile_n << ", register " << r;
            }
        for (uint32_t i = 0; i < strip_pieces(c, kernel_plan(c).strip_cols); ++i)
            for (uint32_t quarter = 0; quarter < 4; ++quarter) {  // eight lanes read sixteen bytes each at once
                std::vector<uint32_t> addresses;
                for (uint32_t lane = quarter * 8; lane < quarter * 8 + 8; ++lane)
                    addresses.push_back(
                        strip_offset(c, strip_pitch(c), strip_piece(c, kernel_plan(c).strip_cols, lane, i)));
                EXPECT_EQ(busiest_bank(addresses, 16), 1u) << tile_n << ", piece " << i;
            }
    }
}

TEST(TmaBox, WhatTheHardwareRefusesIsNotLegal) {
    static_assert(legal({.rows = 256, .cols = 128, .element_bytes = 1, .swizzle = Swizzle::B128}));
    static_assert(!legal({.rows = 257, .cols = 128, .element_bytes = 1, .swizzle = Swizzle::B128}), "too many rows");
    static_assert(!legal({.rows = 0, .cols = 128, .element_bytes = 1, .swizzle = Swizzle::B128}), "no rows");
    static_assert(!legal({.rows = 64, .cols = 0, .element_bytes = 1}), "no columns");
    static_assert(!legal({.rows = 64, .cols = 24, .element_bytes = 1}), "not a multiple of 16 bytes");
    static_assert(!legal({.rows = 64, .cols = 65, .element_bytes = 2, .swizzle = Swizzle::B128}),
                  "wider than the swizzle");
    static_assert(!legal({.rows = 64, .cols = 128, .element_bytes = 2, .swizzle = Swizzle::B128}),
                  "wider than the swizzle");
    static_assert(!legal({.rows = 64, .cols = 320, .element_bytes = 1}), "too many columns");
    static_assert(!legal({.rows = 64, .cols = 16, .element_bytes = 1, .count = 0}), "no matrix");
    static_assert(!legal({.rows = 64, .cols = 16, .element_bytes = 1, .count = 257}), "too many matrices");
}

}  // namespace
}  // namespace finegemm
