// Swapped products: the strips of their warpgroups, and how a group's rows are cut into tiles.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include <finegemm/core/fragment.h>
#include <finegemm/gemm/k_slices.h>
#include <finegemm/gemm/schedule.h>

namespace finegemm {
namespace {

constexpr Operand kBf16 = unscaled(Element::BF16);
constexpr GemmConfig kSwapped{.tile_m = 256, .tile_n = 128, .grouping = Grouping::Rows, .a = kBf16, .b = kBf16};

TEST(Swapped, ProductsAreThoseOfWarpgroupsThatHaveAllRowsOfATile) {
    static_assert(kSwapped.swapped() && kSwapped.wgmmas_m() == 1 && kSwapped.wgmma_cols() == 256);
    GemmConfig other = kSwapped;
    other.math_warpgroups = 4;
    EXPECT_FALSE(other.swapped()) << "each has 64 rows";
    other = kSwapped, other.grouping = Grouping::K;
    EXPECT_FALSE(other.swapped()) << "all tiles have all rows";
    other = kSwapped, other.a = kRowScaled, other.b = kBlockScaled;
    EXPECT_FALSE(other.swapped()) << "scales of rows would be those of columns";
}

TEST(Swapped, AStripHasTheColumnsOfAWarpgroup) {
    std::vector<int> strip(swapped_strip_bytes(kSwapped) / 2, -1);
    const auto element = [](RowCol at) { return static_cast<int>(at.row * kSwappedCols + at.col); };
    for (uint32_t warp = 0; warp < 4; ++warp)
        for (uint32_t pair = 0; pair < swapped_strip_rows(kSwapped) / 16; ++pair)
            for (uint32_t matrix = 0; matrix < 4; ++matrix) {
                std::set<uint32_t> banks;
                for (uint32_t col = 0; col < 8; ++col) {  // of a matrix: another lane has the address of each
                    const RowCol piece = stmatrix_transposed_piece(warp * 32 + matrix * 8 + col, pair);
                    const uint32_t at = panel_offset(kSwappedCols, piece);
                    banks.insert(at / 16 % 8);
                    for (uint32_t row = 0; row < 8; ++row) {
                        const uint32_t lane = row * 4 + col / 2, reg = pair * 8 + matrix * 2 + col % 2;
                        const RowCol of_sums = wgmma_accumulator(warp * 32 + lane, reg);
                        strip.at(at / 2 + row) = element({.row = of_sums.col, .col = of_sums.row});
                    }
                }
                EXPECT_EQ(banks.size(), 8u) << "what is written at once lies in different banks";
            }
    for (uint32_t i = 0; i < swapped_strip_bytes(kSwapped) / 16 / 128; ++i)
        for (uint32_t thread = 0; thread < 128; ++thread) {
            const RowCol piece = swapped_piece(thread, i);
            for (uint32_t e = 0; e < 8; ++e)
                ASSERT_EQ(strip[panel_offset(kSwappedCols, piece) / 2 + e], element({piece.row, piece.col + e}))
                    << piece.row << ", " << piece.col;
        }
}

TEST(Swapped, TilesOfASpanAreAsEvenAsCanBe) {
    const Raster columns = raster_of_columns(kSwapped, 1000);
    for (uint32_t rows = 1; rows < 6000; rows += 17) {
        const RowRange span{7, 7 + rows};
        std::set<uint32_t> seen, heights;
        for (uint32_t index = 0; index < span_tiles(kSwapped, columns, span); ++index) {
            const Tile tile = span_tile(kSwapped, columns, span, index, 0);
            ASSERT_GT(tile.rows, 0u) << "the end of all tiles";
            if (tile.col > 0) continue;
            heights.insert(tile.rows);
            for (uint32_t row = tile.row; row < tile.row + tile.rows; ++row) ASSERT_TRUE(seen.insert(row).second);
        }
        ASSERT_EQ(seen.size(), rows);
        ASSERT_EQ(*seen.begin(), span.begin);
        ASSERT_EQ(*seen.rbegin(), span.end - 1);
        ASSERT_LE(heights.size(), 2u) << rows << ": all but the last one are alike";
        ASSERT_LE(*heights.rbegin() * ceil_div(rows, 256), rows + 16 * ceil_div(rows, 256)) << rows;
    }
}

}  // namespace
}  // namespace finegemm
