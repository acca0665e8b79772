// Which keys a query of an indexer sees, how tiles and slots are shared, and where things lie. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include <finegemm/core/tma_box.h>
#include <finegemm/mqa/mqa.h>
#include <finegemm/mqa/schedule.h>

namespace finegemm {
namespace {

std::vector<MqaConfig> all_configs() {
    std::vector<MqaConfig> all;
    for (const uint32_t heads : {8u, 16u, 32u, 64u})
        for (const uint32_t dim : {32u, 64u, 128u})
            for (const MqaKeys keys : {MqaKeys::Rows, MqaKeys::Pages})
                for (const MqaForm form : {MqaForm::Exact, MqaForm::Abs}) all.push_back({heads, dim, keys, form});
    return all;
}

TEST(Mqa, EachConfigurationHasAPlaceOfItsOwn) {
    std::vector<uint32_t> places;
    for (const MqaConfig& c : all_configs()) places.push_back(c.index());
    std::ranges::sort(places);
    EXPECT_EQ(std::ranges::adjacent_find(places), places.end());
    EXPECT_EQ(places.size(), MqaConfig::kCount);
    EXPECT_EQ(places.back(), MqaConfig::kCount - 1);
}

TEST(Mqa, SharedMemoryIsAlignedDisjointAndFits) {
    for (const MqaConfig& c : all_configs()) {
        const MqaSmemPlan p = mqa_smem(c);
        const uint32_t stages = kMqaWarpgroups * c.stages(),
                       repeats = 8 * c.dim;  // bytes after which a swizzle repeats
        EXPECT_EQ(p.keys % repeats, 0u);
        EXPECT_EQ(p.keys_stage % repeats, 0u);
        EXPECT_EQ(p.queries % repeats, 0u);
        EXPECT_EQ(p.queries_slot % repeats, 0u);
        EXPECT_GE(p.keys, p.queries + kMqaSlots * p.queries_slot);
        EXPECT_GE(p.scales, p.keys + stages * p.keys_stage);
        EXPECT_GE(p.fill, p.scales + stages * p.scales_stage);
        EXPECT_GE(p.sums, p.fill + kMqaFillBytes);
        EXPECT_GE(p.tiles, p.sums + (c.form == MqaForm::Abs ? kMqaWarpgroups * kWarpSize * c.linear_columns() * 4 : 0));
        EXPECT_EQ(p.weights_slot % 16, 0u) << "four are read at once";
        EXPECT_GE(p.weights, p.tiles + stages * 8);
        EXPECT_GE(p.windows, p.weights + kMqaSlots * p.weights_slot);
        EXPECT_GE(p.split, p.windows + kMqaSlots * p.windows_slot);
        EXPECT_LE(p.total, 232448u) << "what a CTA of Hopper has";
        EXPECT_LE(c.most_parts(), kMqaSlots);
        EXPECT_LE(c.queries(), kMqaMostQueries);
    }
}

TEST(Mqa, AQuerySeesNoKeyThatDoesNotExist) {
    const int32_t starts[] = {-5, 10, 90, 100, 40, 7}, ends[] = {200, 5, 110, 200, 60, 7};
    MqaParams p{};
    p.starts = starts, p.ends = ends, p.rows = 6, p.item_queries = 2, p.items = 3, p.keys = 100, p.width = 100;
    const MqaWindow wanted[] = {{0, 100}, {}, {90, 100}, {}, {40, 60}, {}};
    for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(p.window<MqaKeys::Rows>(i / 2, i % 2), wanted[i]) << i;
    p.compressed = 1, p.width = 8;
    const MqaWindow cut[] = {{0, 8}, {}, {90, 98}, {}, {40, 48}, {}};
    for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(p.window<MqaKeys::Rows>(i / 2, i % 2), cut[i]) << i;
}

TEST(Mqa, QueriesOfARequestSeeFewerKeysThanTheLast) {
    const int32_t each[] = {7, 9, 300, 5, -1, 0}, last[] = {9, 1};
    MqaParams p{};
    p.rows = 6, p.item_queries = 3, p.items = 2, p.keys = 256, p.width = 200;
    p.ends = each, p.ends_stride = 3, p.own_lengths = 1;
    const uint32_t own[] = {7, 9, 200, 0, 0, 0};
    for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(p.window<MqaKeys::Pages>(i / 3, i % 3), (MqaWindow{0, own[i]})) << i;
    p.ends = last, p.ends_stride = 1, p.own_lengths = 0;
    const uint32_t by_last[] = {7, 8, 9, 0, 0, 1};
    for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(p.window<MqaKeys::Pages>(i / 3, i % 3), (MqaWindow{0, by_last[i]})) << i;
    const MqaTiles tiles = mqa_tiles<MqaConfig{32, 128, MqaKeys::Pages, MqaForm::Exact}>(p, 0);
    EXPECT_EQ(tiles.count, 1u);
}

TEST(Mqa, TilesReachFromTheFirstKeyThatIsSeenToTheLast) {
    const int32_t starts[] = {70, 0, 500}, ends[] = {75, 0, 513};
    MqaParams p{};
    p.starts = starts, p.ends = ends, p.rows = 3, p.item_queries = 4, p.items = 1, p.keys = 1000, p.width = 1000;
    const MqaTiles tiles = mqa_tiles<MqaConfig{32, 128, MqaKeys::Rows, MqaForm::Exact}>(p, 0);
    EXPECT_EQ(tiles.first, 1u);
    EXPECT_EQ(tiles.count, 8u);  // 64 to 576
}

TEST(Mqa, AnItemCostsMoreThanItHasTilesAndALongerOneNoLess) {
    for (const MqaConfig& c : all_configs()) {
        EXPECT_EQ(mqa_cost(c, 0), 0u);
        for (uint32_t tiles = 1; tiles < 1000; ++tiles) {
            EXPECT_GT(mqa_cost(c, tiles), tiles);
            EXPECT_GE(mqa_cost(c, tiles), mqa_cost(c, tiles - 1));
        }
    }
}

TEST(Mqa, SharesAreEvenAndMeet) {
    for (const uint32_t total : {0u, 1u, 131u, 132u, 1000u, 4'000'000'000u})
        for (const uint32_t ctas : {1u, 7u, 132u}) {
            uint64_t next = 0;
            for (uint32_t cta = 0; cta < ctas; ++cta) {
                const MqaShare share = mqa_share(total, cta, ctas);
                EXPECT_EQ(share.first, next);
                EXPECT_LE(share.count - total / ctas, 1u);
                next += share.count;
            }
            EXPECT_EQ(next, total);
        }
}

TEST(Mqa, TheSlotThatBeginsAtAUnitIsFound) {
    for (const uint32_t slots : {1u, 5u, 132u})
        for (uint32_t units = 0; units < 300; ++units) {
            const MqaSlots of = MqaSlots::of(units, slots);
            EXPECT_EQ(of.begin(slots), units);
            for (uint32_t unit = 0; unit < units; ++unit) {
                uint32_t first = 0;
                while (first < slots && of.begin(first) < unit) ++first;
                ASSERT_EQ(of.slot_from(unit), first) << units << " units, " << slots << " slots, unit " << unit;
            }
        }
}

TEST(Mqa, ASwizzleKeepsChunksInTheirRowsAndRepeatsAfterEight) {
    for (const uint32_t width : {32u, 64u, 128u}) {
        const auto swizzle = static_cast<Swizzle>(width);
        std::vector<bool> taken(8 * width);
        for (uint32_t at = 0; at < 8 * width; ++at) {
            const uint32_t to = swizzled(at, swizzle);
            EXPECT_EQ(to / width, at / width);
            EXPECT_EQ(to % 16, at % 16);
            EXPECT_EQ(swizzled(at + 8 * width, swizzle), to + 8 * width);
            taken[to] = true;
        }
        EXPECT_TRUE(std::ranges::all_of(taken, [](bool x) { return x; }));
    }
    EXPECT_EQ(swizzled(128, Swizzle::B128), 128u + 16);  // row 1: chunks 0 and 1 change places
    EXPECT_EQ(swizzled(128, Swizzle::B64), 128u + 16);   // row 2
    EXPECT_EQ(swizzled(128, Swizzle::B32), 128u + 16);   // row 4
    EXPECT_EQ(swizzled(100, Swizzle::None), 100u);
}

}  // namespace
}  // namespace finegemm
