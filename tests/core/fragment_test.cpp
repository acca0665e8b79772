// From the registers of a warpgroup to a staged tile: wgmma's fragment, stmatrix, the swizzle and TMA's way back.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include <finegemm/core/fragment.h>
#include <finegemm/core/wgmma_desc.h>
#include <finegemm/gemm/boxes.h>

#include "support/configs.h"

namespace finegemm {
namespace {

TEST(Fragment, RegistersOfAWarpgroupHoldEachElementOnce) {
    for (uint32_t n : {8u, 16u, 96u, 256u}) {
        std::set<std::pair<uint32_t, uint32_t>> seen;
        for (uint32_t thread = 0; thread < 128; ++thread)
            for (uint32_t reg = 0; reg < n / 2; ++reg) {
                const RowCol at = wgmma_accumulator(thread, reg);
                EXPECT_LT(at.row, 64u);
                EXPECT_LT(at.col, n);
                seen.insert({at.row, at.col});
            }
        EXPECT_EQ(seen.size(), 64 * n);
    }
}

TEST(Fragment, IsThatOfThePtxManual) {
    static_assert(wgmma_accumulator(0, 0) == RowCol{0, 0} && wgmma_accumulator(0, 1) == RowCol{0, 1});
    static_assert(wgmma_accumulator(0, 2) == RowCol{8, 0} && wgmma_accumulator(0, 4) == RowCol{0, 8});
    static_assert(wgmma_accumulator(1, 0) == RowCol{0, 2} && wgmma_accumulator(4, 0) == RowCol{1, 0});
    static_assert(wgmma_accumulator(32, 0) == RowCol{16, 0} && wgmma_accumulator(127, 7) == RowCol{63, 15});
}

/// One warp's strip in shared memory, 16-bit elements.
struct Strip {
    GemmConfig config;
    std::vector<int> elements;

    explicit Strip(const GemmConfig& c) : config(c), elements(16 * strip_pitch(c) / 2, -1) {}

    /// stmatrix.x4. PTX ISA: lane 8 * i + r gives the address of row r of matrix i; of matrix i, lane l holds row
    /// l / 4, columns l % 4 * 2 and the next, in its register i.
    template <typename Register>
    void stmatrix_x4(uint32_t pair, const Register& reg) {
        for (uint32_t matrix = 0; matrix < 4; ++matrix)
            for (uint32_t lane = 0; lane < 32; ++lane) {
                const uint32_t address =
                    strip_offset(config, strip_pitch(config), stmatrix_piece(matrix * 8 + lane / 4, pair));
                for (uint32_t half = 0; half < 2; ++half)
                    elements.at(address / 2 + lane % 4 * 2 + half) = reg(lane, matrix * 2 + half);
            }
    }
};

TEST(Fragment, AWarpsStagedTileIsReadBackRowByRow) {
    for (const GemmConfig& c : test::kConfigs) {
        if (c.output == Output::F32) continue;
        SCOPED_TRACE(test::describe(c));
        Strip strip(c);
        const auto element = [&](RowCol at) { return static_cast<int>(at.row * kernel_plan(c).strip_cols + at.col); };
        for (uint32_t pair = 0; pair < kernel_plan(c).strip_cols / 16; ++pair)
            strip.stmatrix_x4(
                pair, [&](uint32_t lane, uint32_t reg) { return element(wgmma_accumulator(lane, pair * 8 + reg)); });
        for (uint32_t i = 0; i < kernel_plan(c).strip_cols / 16; ++i)
            for (uint32_t lane = 0; lane < 32; ++lane) {
                const RowCol piece = strip_piece(c, kernel_plan(c).strip_cols, lane, i);
                for (uint32_t e = 0; e < 8; ++e)
                    ASSERT_EQ(strip.elements[strip_offset(c, strip_pitch(c), piece) / 2 + e],
                              element({piece.row, piece.col + e}))
                        << piece.row << ", " << piece.col;
            }
    }
}

TEST(Fragment, AWarpsStagedFloatsAreReadBackRowByRow) {
    for (uint32_t tile_n = 16; tile_n <= 256; tile_n += 16) {
        const GemmConfig c{.tile_n = tile_n, .b = kRowScaled, .output = Output::F32};
        std::vector<int> strip(16 * strip_pitch(c) / 4, -1);
        const auto element = [&](RowCol at) { return static_cast<int>(at.row * kernel_plan(c).strip_cols + at.col); };
        for (uint32_t reg = 0; reg < kernel_plan(c).strip_cols / 2; ++reg)
            for (uint32_t lane = 0; lane < 32; ++lane) {
                const RowCol at = wgmma_accumulator(lane, reg);
                strip.at(strip_offset(c, strip_pitch(c), at) / 4) = element(at);
            }
        for (uint32_t i = 0; i < strip_pieces(c, kernel_plan(c).strip_cols); ++i)
            for (uint32_t lane = 0; lane < 32; ++lane) {
                const RowCol piece = strip_piece(c, kernel_plan(c).strip_cols, lane, i);
                const RowCol first = strip_piece(c, kernel_plan(c).strip_cols, lane, 0),
                             step = strip_piece(c, kernel_plan(c).strip_cols, 0, 1);
                EXPECT_EQ(piece, (RowCol{first.row + i * step.row, first.col})) << "a lane keeps to its columns";
                for (uint32_t e = 0; e < 4; ++e)
                    ASSERT_EQ(strip[strip_offset(c, strip_pitch(c), piece) / 4 + e],
                              element({piece.row, piece.col + e}))
                        << tile_n << ": " << piece.row << ", " << piece.col;
            }
    }
}

TEST(Fragment, StmatrixHitsEachBankOnce) {
    for (const GemmConfig& c : test::kConfigs)
        for (uint32_t pair = 0; c.output == Output::BF16 && pair < kernel_plan(c).strip_cols / 16; ++pair)
            for (uint32_t matrix = 0; matrix < 4; ++matrix) {
                std::set<uint32_t> groups;
                for (uint32_t row = 0; row < 8; ++row)
                    groups.insert(strip_offset(c, strip_pitch(c), stmatrix_piece(matrix * 8 + row, pair)) / 16 % 8);
                EXPECT_EQ(groups.size(), 8u) << test::describe(c) << ", pair " << pair << ", matrix " << matrix;
            }
}

constexpr uint64_t bits(uint64_t x, uint32_t first, uint32_t count) { return x >> first & ((1ull << count) - 1); }

TEST(WgmmaDescriptor, HasTheFieldsOfThePtxManual) {
    for (uint32_t address : {0u, 1024u, 0x8400u, 227u * 1024}) {
        const uint64_t d = wgmma_descriptor(address);
        EXPECT_EQ(bits(d, 0, 14), address / 16);
        EXPECT_EQ(bits(d, 32, 14), 1024u / 16) << "eight rows of 128 bytes";
        EXPECT_EQ(bits(d, 49, 3), 0u) << "base offset: atoms are aligned";
        EXPECT_EQ(bits(d, 62, 2), 1u) << "128-byte swizzle";
        EXPECT_EQ(bits(d, 14, 2) | bits(d, 30, 2) | bits(d, 46, 3) | bits(d, 52, 10), 0u) << "reserved";
    }
}

TEST(WgmmaDescriptor, AStepAlongKAddsSixteenthsOfItsBytes) {
    for (uint32_t address : {0u, 1024u, 200u * 1024})
        for (uint32_t step = 0; step < 4; ++step)  // as wgmma_k128 does
            EXPECT_EQ(wgmma_descriptor(address) + 2 * step, wgmma_descriptor(address + 32 * step));
}

TEST(WgmmaDescriptor, OfShortRowsSaysWhereTheSecondHalfOfKIs) {
    for (uint32_t address : {0u, 1040u, 200u * 1024})
        for (uint32_t leading : {0u, 1024u, 100u * 1024}) {
            const uint64_t d = wgmma_descriptor_of_short_rows(address, leading);
            EXPECT_EQ(bits(d, 0, 14), address / 16);
            EXPECT_EQ(bits(d, 16, 14), leading / 16);
            EXPECT_EQ(bits(d, 32, 14), 128u / 16) << "eight rows of 16 bytes";
            EXPECT_EQ(bits(d, 62, 2), 0u) << "not swizzled";
            EXPECT_EQ(bits(d, 14, 2) | bits(d, 30, 2) | bits(d, 46, 16), 0u) << "reserved";
            EXPECT_EQ(wgmma_short_rows_with(wgmma_short_rows_low(address, leading)), d);
        }
}

TEST(WgmmaDescriptor, ItsLowHalfIsAllThatTheAddressChanges) {
    for (uint32_t address : {0u, 1024u, 0x8400u, 227u * 1024})
        EXPECT_EQ(wgmma_descriptor_with(wgmma_descriptor_low(address)), wgmma_descriptor(address));
}

/// What follows 64 elements of M or N, and what follows eight of K, where PTX's "strides" put them for MN-major
/// operands.
TEST(WgmmaDescriptor, OfMnMajorOperandsSaysWhereTheNextBoxIs) {
    for (const uint32_t address : {0u, 1024u, 200u * 1024})
        for (const uint32_t leading : {8192u, 65536u}) {
            const uint64_t d = wgmma_descriptor_with(wgmma_mn_descriptor_low(address, leading));
            EXPECT_EQ(d & 0x3fff, address >> 4);
            EXPECT_EQ(d >> 16 & 0x3fff, leading >> 4);
            EXPECT_EQ(d >> 32 & 0x3fff, 1024u >> 4);
            EXPECT_EQ(d >> 62, 1u);
            for (uint32_t step = 0; step < 4; ++step)  // of sixteen rows of K, inside of a box of 64
                EXPECT_EQ(d + step * wgmma_k16_step(true),
                          wgmma_descriptor_with(wgmma_mn_descriptor_low(address + step * 16 * 128, leading)));
        }
    EXPECT_EQ(wgmma_k16_step(false), 2u);
}

}  // namespace
}  // namespace finegemm
