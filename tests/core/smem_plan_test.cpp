// The plan of shared memory, and the boxes that TMA moves there.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include <finegemm/core/tma_box.h>

#include "support/configs.h"

namespace finegemm {
namespace {

struct Object {
    uint32_t begin, bytes, alignment;
};

std::vector<Object> objects(const GemmConfig& c) {
    const SmemPlan p = smem_plan(c);
    std::vector<Object> list;
    const auto add = [&list](uint32_t at, uint32_t count, uint32_t pitch, uint32_t bytes, uint32_t alignment) {
        for (uint32_t i = 0; i < count; ++i) list.push_back({at + i * pitch, bytes, alignment});
    };
    add(p.a, c.stages, p.a_stage, c.tile_m * 128, 1024);   // swizzle atoms
    add(p.b, c.stages, p.b_stage, c.tile_n * 128, 1024);
    add(p.sfa, c.stages, p.sfa_stage, c.tile_m * 4, 16);   // written sixteen bytes at a time
    add(p.sfb, c.stages, p.sfb_stage, kMaxBScales * 4, 4);
    add(p.full, c.stages, 8, 8, 8);
    add(p.empty, c.stages, 8, 8, 8);
    if (c.k_splits() > 1) {
        const uint32_t bytes = c.k_splits() * c.rows_per_warpgroup() * split_pitch(c) * 4;
        add(p.partials, c.math_warpgroups, p.partials_warpgroup, bytes, 16);
        add(p.partials_full, c.math_warpgroups, 8, 8, 8);
    } else {
        const uint32_t boxes = c.slab_n / d_box_cols(c);
        for (uint32_t w = 0; w < c.math_warpgroups; ++w)
            add(p.d + w * p.d_warpgroup, boxes, d_box_bytes(c), 64 * d_box_cols(c) * 2, 1024);
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
    EXPECT_LE(end + 1024, smem_plan(c).total) << "the kernel may skip up to 1023 bytes to align its base";
    EXPECT_EQ(smem_plan(c).total % 16, 0u);
}

TEST(SmemPlan, ObjectsAreAlignedApartAndInside) {
    for (const GemmConfig& c : test::kConfigs) expect_sound(c);
    for (uint32_t warpgroups = 1; warpgroups <= 3; ++warpgroups)
        for (uint32_t rows : {64u, 128u})
            for (uint32_t tile_n = 16; tile_n <= 256; tile_n += 16)
                for (uint32_t splits : {1u, 2u, 3u, 5u, 8u})
                    expect_sound({.tile_m = warpgroups * rows,
                                  .tile_n = tile_n,
                                  .stages = 3 + tile_n % 5,
                                  .math_warpgroups = warpgroups,
                                  .cluster = splits,
                                  .cluster_use = splits > 1 ? ClusterUse::SplitK : ClusterUse::None,
                                  .slab_n = tile_n});
}

TEST(SmemPlan, TheConfigurationsOfTheTestsFitAnSm) {
    for (const GemmConfig& c : test::kConfigs)
        EXPECT_LE(smem_plan(c).total, 232448 / c.ctas_per_sm) << test::describe(c);
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
        for (uint32_t m : {1u, 7u, 8u, 9u, 63u, 64u, 100u, 255u, 4096u}) EXPECT_TRUE(legal(a_box(c, m))) << m;
        EXPECT_TRUE(legal(b_box(c)));
        EXPECT_TRUE(legal(d_box(c)));
        EXPECT_EQ(c.slab_n % d_box_cols(c), 0u) << "boxes fill the slab";
        EXPECT_EQ(c.tile_n % c.slab_n, 0u) << "slabs fill the tile";
    }
}

TEST(TmaBox, SharersTogetherLoadTheWholeTile) {
    for (const GemmConfig& c : test::kConfigs) {
        EXPECT_EQ(b_box_rows(c) * c.b_sharers(), c.tile_n);
        if (c.a_sharers() == 1) continue;   // rows may be fewer: the next test
        for (uint32_t m : {1u, 64u, 100u, 4096u}) EXPECT_EQ(a_box_rows(c, m) * c.a_sharers(), c.tile_m);
    }
}

TEST(TmaBox, ASmallMShrinksTheBoxButNotBelowIt) {
    const GemmConfig c{.tile_m = 128};
    for (uint32_t m = 1; m <= 300; ++m) {
        const uint32_t rows = a_box_rows(c, m);
        EXPECT_GE(rows, std::min(m, 128u));
        EXPECT_LE(rows, 128u);
        EXPECT_LT(rows, m + 8);
        EXPECT_EQ(rows % 8, 0u) << "a swizzle atom is eight rows";
    }
}

TEST(SlabOffset, PiecesFillTheSlabOnceAndRowsFollowTheBox) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        std::set<uint32_t> seen;
        for (uint32_t row = 0; row < 64; ++row)
            for (uint32_t col = 0; col < c.slab_n; col += 8) {
                const uint32_t at = slab_offset(c, {row, col});
                EXPECT_EQ(at % 16, 0u);
                EXPECT_LT(at, c.slab_n / d_box_cols(c) * d_box_bytes(c));
                EXPECT_TRUE(seen.insert(at).second) << "two pieces in one place";
                // TMA reads box after box, and the swizzle stays within a row.
                const uint32_t row_bytes = d_box_cols(c) * 2;
                EXPECT_EQ(at / d_box_bytes(c), col / d_box_cols(c));
                EXPECT_EQ(at % d_box_bytes(c) / row_bytes, row);
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
}

}  // namespace
}  // namespace finegemm
