// What the Hopper backend launches for grouped GEMMs. Layer tests.
#include <cstdint>

#include <finegemm/gemm/boxes.h>
#include <finegemm/gemm/kernel_plan.h>

#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_grouped_test {
namespace {

using test::address;

class HopperGrouped : public test::HopperTest {};

constexpr plan::Kind kKinds[] = {{.grouping = Grouping::Rows}, {.grouping = Grouping::Rows, .b = kRowScaled}};

/// Stacked: each group has an A and a D of its own, of which `m` rows exist.
GroupedGemmArgs operands(int64_t m, int64_t n, int64_t k, int64_t groups, bool row_b_scales = false) {
    GemmArgs one = test::operands(m, n, k);
    if (row_b_scales) one.sfb.rows = n;
    return {.a = {one.a, groups, m * k},
            .sfa = {one.sfa, groups, m * one.sfa.cols},
            .b = {one.b, groups, n * k},
            .sfb = {one.sfb, groups, one.sfb.rows * one.sfb.cols},
            .d = {one.d, groups, m * n + 64},
            .groups = {.form = GroupForm::Masked,
                       .data = static_cast<const int32_t*>(address(0x900000000)),
                       .size = groups,
                       .device = one.d.device}};
}

TEST_F(HopperGrouped, LaunchesEveryKernelByName) {
    const auto hopper = backend();
    uint32_t stored_by_tma = 0;
    for (const plan::Kind& kind : kKinds)
        for (const GemmConfig& c : plan::candidates(kind)) {
            SCOPED_TRACE(plan::name_of(c));
            hopper->gemm({operands(1000, 1032, 2176, 5, c.row_b_scales()), {.config = plan::name_of(c)}});
            const mock::Launch& launch = last_launch();
            EXPECT_EQ(launch.entry, entry_of(c));
            EXPECT_EQ(launch.smem_bytes, kernel_plan(c).smem.total);
            const SegmentedParams& p = launch.gemm;
            EXPECT_EQ(p.raster, raster_of_columns(c, 1032));
            EXPECT_EQ(mock::description_of(p.a.whole).box_rows, c.tile_m / c.a_sharers());
            EXPECT_EQ(mock::description_of(p.b.last).box_rows, b_rows_of_last(c, 1032));
            EXPECT_EQ(launch.grouped.sfb_stride, (c.row_b_scales() ? 1032 : 9) * 17);
            for (uint32_t width = 0; width < kPanelWidths; ++width) {
                const bool stored = kernel_plan(c).tma_store() && panels_of_width(c, width) > 0;
                const mock::Description d = mock::description_of(p.d[width]);
                EXPECT_EQ(d.box_cols, stored ? panel_width(width) : 0u);
                EXPECT_EQ(d.rows, stored ? 1000u : 0u);
                stored_by_tma += stored;
            }
        }
    EXPECT_GT(stored_by_tma, 0u);
}

TEST_F(HopperGrouped, KeepsNumbersForGroupsThatAreWhole) {
    const auto hopper = backend();
    const int32_t* kept = nullptr;
    for (const int64_t m : {40, 1000}) {
        GroupedGemmArgs args = operands(m, 1032, 2176, 5);
        args.groups = {.form = GroupForm::Whole};
        hopper->gemm({args, {}});
        const GroupLayout& groups = last_launch().grouped.groups;
        EXPECT_TRUE(groups.stacked);
        for (uint32_t g = 0; g < 5; ++g) EXPECT_EQ(groups.span(g), (RowRange{0, static_cast<uint32_t>(m)}));
        if (!kept) kept = groups.ends;
        EXPECT_EQ(groups.ends, kept) << "they are written once";
    }
}

TEST_F(HopperGrouped, LaunchesNoMoreCtasThanTheRoundsOfWholeGroupsTake) {
    mock->resident_clusters = 132, mock->resident_ctas = 1;
    const auto hopper = backend();
    GroupedGemmArgs args = operands(4096, 1024, 1024, 8);
    const auto grid = [&](GroupForm form) {
        args.groups.form = form;
        hopper->gemm({args, {.config = "m128n128s6w2_grouped"}});
        return last_launch().grid;
    };
    EXPECT_EQ(grid(GroupForm::Masked), 132u) << "nobody knows how many tiles there are";
    args.groups.data = nullptr, args.groups.size = 0;
    EXPECT_EQ(grid(GroupForm::Whole), 128u) << "2048 tiles take 16 rounds";
}

TEST_F(HopperGrouped, FewRowsOfWholeGroupsStayInL2WhereTilesOfOtherColumnsReadThem) {
    const auto hopper = backend();
    const auto is_read_once = [&](int64_t m, int64_t n) {
        GroupedGemmArgs args = operands(m, n, 1024, 8);
        args.groups = {.form = GroupForm::Whole};
        hopper->gemm({args, {.config = "m128n128s6w2_grouped"}});
        return last_launch().gemm.a_policy == kEvictFirst;
    };
    EXPECT_TRUE(is_read_once(128, 128));
    EXPECT_FALSE(is_read_once(128, 256));
    EXPECT_FALSE(is_read_once(1024, 128)) << "longer ones push out what is to be read next";
}

TEST_F(HopperGrouped, FewRowsOfWholeGroupsComeToL2ByLines) {
    const auto hopper = backend();
    const auto promotion = [&](int64_t m) {
        GroupedGemmArgs args = operands(m, 1024, 1024, 8);
        args.groups = {.form = GroupForm::Whole};
        hopper->gemm({args, {.config = "m128n128s6w2_grouped"}});
        return mock::l2_promotion_of(last_launch().gemm.a.whole);
    };
    EXPECT_EQ(promotion(128), mock::kPromotes128);
    EXPECT_EQ(promotion(1024), mock::kPromotes256) << "other tiles ask for the rest";
}

TEST_F(HopperGrouped, TellsKernelsWhatIsExpectedOfAGroup) {
    const auto hopper = backend();
    GroupedGemmArgs args = operands(1000, 1032, 2176, 5);
    const auto tiles_below = [&](int64_t rows) {
        args.groups.expected_m = rows;
        hopper->gemm({args, {.config = "m128n128s6w2_grouped"}});
        return last_launch().grouped.expected.tiles_below;
    };
    EXPECT_EQ(tiles_below(129), 2u);
    EXPECT_EQ(tiles_below(0), 8u) << "none are: all that there may be";
    EXPECT_EQ(tiles_below(INT64_MAX), ExpectedGroups::kMost);
}

}  // namespace
}  // namespace finegemm::hopper_grouped_test
