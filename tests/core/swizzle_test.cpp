// The XOR swizzle: a permutation that spreads a column over the banks.
#include <gtest/gtest.h>

#include <set>

#include <finegemm/core/swizzle.h>

namespace finegemm {
namespace {

constexpr Swizzle kModes[] = {Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128};

TEST(Swizzle, IsItsOwnInverse) {
    for (const Swizzle mode : kModes)
        for (uint32_t offset = 0; offset < 4096; ++offset) ASSERT_EQ(swizzled(mode, swizzled(mode, offset)), offset);
}

TEST(Swizzle, PermutesSixteenByteChunksInsideOfAnAtom) {
    for (const Swizzle mode : kModes) {
        std::set<uint32_t> places;
        for (uint32_t offset = 0; offset < 1024; ++offset) {
            const uint32_t place = swizzled(mode, offset);
            places.insert(place);
            ASSERT_EQ(place % 16, offset % 16);
            ASSERT_EQ(place / 128, offset / 128) << "stays in its 128 bytes";
            ASSERT_EQ(swizzled(mode, offset + 1024), place + 1024);
        }
        EXPECT_EQ(places.size(), 1024u);
    }
}

TEST(Swizzle, EightRowsOfAColumnLieInEightGroupsOfBanks) {
    for (const Swizzle mode : {Swizzle::B32, Swizzle::B64, Swizzle::B128}) {
        const uint32_t row_bytes = static_cast<uint32_t>(mode);
        for (uint32_t first = 0; first < 64; first += 8)
            for (uint32_t chunk = 0; chunk < row_bytes / 16; ++chunk) {
                std::set<uint32_t> groups;
                for (uint32_t row = first; row < first + 8; ++row)
                    groups.insert(swizzled(mode, row * row_bytes + chunk * 16) / 16 % 8);
                EXPECT_EQ(groups.size(), 8u) << row_bytes << " bytes, chunk " << chunk;
            }
    }
}

TEST(Swizzle, IsThatOfThePtxManual) {
    // PTX ISA, 128-byte swizzling: chunk c of row r of eight lies where chunk c xor r would.
    for (uint32_t row = 0; row < 8; ++row)
        for (uint32_t chunk = 0; chunk < 8; ++chunk)
            EXPECT_EQ(swizzled(Swizzle::B128, row * 128 + chunk * 16), row * 128 + (chunk ^ row) * 16);
    static_assert(swizzled(Swizzle::B64, 128) == 128 + 16 && swizzled(Swizzle::B64, 256) == 256 + 32);
    static_assert(swizzled(Swizzle::B32, 128) == 128 + 16 && swizzled(Swizzle::B32, 256) == 256);
    static_assert(swizzled(Swizzle::None, 1000) == 1000);
}

TEST(Swizzle, IsAsWideAsTheRows) {
    static_assert(swizzle_for(128) == Swizzle::B128 && swizzle_for(64) == Swizzle::B64 &&
                  swizzle_for(32) == Swizzle::B32);
    static_assert(swizzle_for(96) == Swizzle::None && swizzle_for(16) == Swizzle::None &&
                  swizzle_for(256) == Swizzle::None);
}

}  // namespace
}  // namespace finegemm
