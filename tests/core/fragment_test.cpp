// From the registers of a warpgroup to a staged tile: wgmma's fragment, stmatrix, the swizzle and TMA's way back.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include <finegemm/core/fragment.h>
#include <finegemm/core/tma_box.h>
#include <finegemm/core/wgmma_desc.h>

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

/// One warpgroup's slab in shared memory, 16-bit elements.
struct Slab {
    GemmConfig config;
    std::vector<int> elements;

    explicit Slab(const GemmConfig& c) : config(c), elements(c.slab_n / d_box_cols(c) * d_box_bytes(c) / 2, -1) {}

    /// Byte offset of a 16-byte piece, as store_tile computes it.
    uint32_t offset(RowCol piece) const {
        const TmaBox box = d_box(config);
        return piece.col / box.cols * d_box_bytes(config) +
               swizzled(box.swizzle, piece.row * box.cols * 2 + piece.col % box.cols * 2);
    }

    /// stmatrix.x4 of one warp. PTX ISA: lane 8 * i + r gives the address of row r of matrix i; of matrix i, lane l
    /// holds row l / 4, columns l % 4 * 2 and the next, in its register i.
    template <typename Register>
    void stmatrix_x4(uint32_t warp, uint32_t pair, const Register& reg) {
        for (uint32_t matrix = 0; matrix < 4; ++matrix)
            for (uint32_t lane = 0; lane < 32; ++lane) {
                const uint32_t address = offset(stmatrix_piece(warp * 32 + matrix * 8 + lane / 4, pair));
                for (uint32_t half = 0; half < 2; ++half)
                    elements.at(address / 2 + lane % 4 * 2 + half) = reg(warp * 32 + lane, matrix * 2 + half);
            }
    }

    /// What TMA reads for (row, col): it undoes the swizzle of the box's rows.
    int tma(uint32_t row, uint32_t col) const {
        const TmaBox box = d_box(config);
        const uint32_t bytes = box.cols * 2, width = static_cast<uint32_t>(box.swizzle),
                       at = row * bytes + col % box.cols * 2;
        const uint32_t chunks = width / 16;   // of a swizzled row: permuted by the number of the 128-byte line
        const uint32_t chunk = chunks ? (at / 16 % chunks) ^ (at / 128 % chunks) : 0;
        const uint32_t place = chunks ? at / width * width + chunk * 16 + at % 16 : at;
        return elements.at((col / box.cols * d_box_bytes(config) + place) / 2);
    }
};

TEST(Fragment, AWarpgroupsStagedTileIsReadBackRowByRow) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        Slab slab(c);
        const auto element = [&](RowCol at) { return static_cast<int>(at.row * c.slab_n + at.col); };
        for (uint32_t warp = 0; warp < 4; ++warp)
            for (uint32_t pair = 0; pair < c.slab_n / 16; ++pair)
                slab.stmatrix_x4(warp, pair, [&](uint32_t thread, uint32_t reg) {
                    return element(wgmma_accumulator(thread, pair * 8 + reg));
                });
        for (uint32_t row = 0; row < 64; ++row)
            for (uint32_t col = 0; col < c.slab_n; ++col)
                ASSERT_EQ(slab.tma(row, col), element({row, col})) << row << ", " << col;
    }
}

TEST(Fragment, StmatrixHitsEachBankOnceWhereRowsAreSwizzled) {
    for (const GemmConfig& c : test::kConfigs) {
        if (d_box(c).swizzle == Swizzle::None) continue;
        const Slab slab(c);
        for (uint32_t pair = 0; pair < c.slab_n / 16; ++pair)
            for (uint32_t matrix = 0; matrix < 16; ++matrix) {   // of all four warps
                std::set<uint32_t> groups;
                for (uint32_t row = 0; row < 8; ++row)
                    groups.insert(slab.offset(stmatrix_piece(matrix * 8 + row, pair)) / 16 % 8);
                EXPECT_EQ(groups.size(), 8u) << test::describe(c) << ", pair " << pair << ", matrix " << matrix;
            }
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
        for (uint32_t step = 0; step < 4; ++step)   // as wgmma_k128_e4m3 does
            EXPECT_EQ(wgmma_descriptor(address) + 2 * step, wgmma_descriptor(address + 32 * step));
}

}  // namespace
}  // namespace finegemm
