// Which rows a group has, for every form and for numbers that break the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <vector>

#include <finegemm/gemm/params.h>

namespace finegemm {
namespace {

std::vector<RowRange> ranges(const GroupLayout& layout) {
    std::vector<RowRange> all;
    for (uint32_t i = 0; i < layout.spans(); ++i) all.push_back(layout.span(i));
    return all;
}

TEST(GroupLayout, OffsetsBeginWhereTheFirstOneSaysAndMayBeEqual) {
    const std::vector<int32_t> offsets = {5, 9, 9, 100};
    const GroupLayout layout{.ends = &offsets[1], .groups = 3, .rows = 128, .first_is_given = true};
    EXPECT_EQ(ranges(layout), (std::vector<RowRange>{{5, 9}, {9, 9}, {9, 100}}));
}

TEST(GroupLayout, PrefixSumsBeginAtMultiplesOfTheAlignment) {
    const std::vector<int32_t> ends = {3, 128, 300};
    const GroupLayout layout{.ends = ends.data(), .groups = 3, .rows = 512, .alignment = 128};
    EXPECT_EQ(ranges(layout), (std::vector<RowRange>{{0, 3}, {128, 128}, {128, 300}}));
}

TEST(GroupLayout, StackedGroupsBeginAtTheirFirstRow) {
    const std::vector<int32_t> masks = {3, 0, 64};
    const GroupLayout layout{.ends = masks.data(), .groups = 3, .rows = 64, .stacked = true};
    EXPECT_EQ(ranges(layout), (std::vector<RowRange>{{0, 3}, {0, 0}, {0, 64}}));
}

TEST(GroupLayout, StackedGroupsWithoutNumbersHaveAllRows) {
    const GroupLayout layout{.groups = 3, .rows = 65, .stacked = true};
    EXPECT_EQ(ranges(layout), (std::vector<RowRange>{{0, 65}, {0, 65}, {0, 65}}));
    EXPECT_EQ(layout.ends_of(2).group, 2u);
}

TEST(GroupLayout, IndicesAreBlocksWithoutThePaddingAtTheirEnds) {
    for (const uint32_t alignment : {64u, 128u, 1024u})
        for (uint32_t first = 0; first <= alignment; ++first) {  // rows of the first block that have a group
            std::vector<int32_t> indices(2 * alignment + 3, -1);
            std::fill_n(indices.begin(), first, 1);
            std::fill_n(indices.end() - 3, 2, 0);
            const auto rows = static_cast<uint32_t>(indices.size());
            const GroupLayout layout{.indices = indices.data(), .groups = 2, .rows = rows, .alignment = alignment};
            ASSERT_EQ(ranges(layout),
                      (std::vector<RowRange>{{0, first}, {alignment, alignment}, {2 * alignment, 2 * alignment + 2}}));
            ASSERT_EQ(layout.ends_of(0).group, first > 0 ? 1u : UINT32_MAX);
            ASSERT_EQ(layout.ends_of(2).group, 0);
        }
}

TEST(GroupLayout, IndicesThatBreakTheRulesStayInsideOfTheMatrix) {
    std::vector<int32_t> indices(300);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = i * i % 7 < 4 ? static_cast<int32_t>(i % 3) : INT32_MIN;
    const GroupLayout layout{.indices = indices.data(), .groups = 2, .rows = 300, .alignment = 64};
    for (uint32_t i = 0; i < layout.spans(); ++i) {
        const RowRange rows = layout.span(i);
        EXPECT_EQ(rows.begin, i * 64);
        EXPECT_LE(rows.end, min(300, (i + 1) * 64));
        EXPECT_TRUE(rows.size() == 0 || layout.is_group(static_cast<int32_t>(layout.ends_of(i).group)));
    }
}

TEST(GroupLayout, KnowsWhichIndicesAreGroups) {
    const GroupLayout layout{.groups = 2};
    EXPECT_TRUE(layout.is_group(0) && layout.is_group(1));
    EXPECT_FALSE(layout.is_group(2) || layout.is_group(-1) || layout.is_group(INT32_MIN));
}

TEST(GroupLayout, NumbersThatBreakTheRulesStayInsideOfTheMatrix) {
    const std::vector<int32_t> wild = {INT32_MIN, 7, -1, INT32_MAX, 3, 200, 100};
    for (const uint32_t alignment : {1u, 128u, 1u << 30})
        for (const bool stacked : {false, true})
            for (const RowRange& r : ranges({.ends = &wild[1],
                                             .groups = 6,
                                             .rows = 150,
                                             .alignment = alignment,
                                             .first_is_given = true,
                                             .stacked = stacked})) {
                EXPECT_LE(r.begin, r.end);
                EXPECT_LE(r.end, 150u);
            }
}

TEST(KGroupLayout, GroupsHaveTheBlocksBetweenTheirOffsets) {
    const std::vector<int32_t> offsets = {128, 128, 512, 640};
    const KGroupLayout layout{.offsets = offsets.data(), .groups = 3, .k_blocks = 8};
    EXPECT_EQ(layout.group(0), (KRange{1, 1}));
    EXPECT_EQ(layout.group(1), (KRange{1, 4}));
    EXPECT_EQ(layout.group(2), (KRange{4, 5}));
}

TEST(KGroupLayout, ParametersHaveTheOffsetsThatTheHostKnows) {
    const std::vector<int32_t> offsets = {0, 256, 256, 1024};
    KGroupedParams p{};
    p.groups = {.offsets = offsets.data(), .groups = 3, .k_blocks = 8};
    p.host_offsets[1] = 128;
    EXPECT_EQ(p.k_groups().offsets, offsets.data());
    const KGroupLayout there = p.k_groups();
    p.groups.offsets = nullptr;
    std::copy(offsets.begin(), offsets.end(), p.host_offsets);
    for (uint32_t g = 0; g < 3; ++g) EXPECT_EQ(p.k_groups().group(g), there.group(g)) << g;
}

TEST(KGroupLayout, NumbersThatBreakTheRulesStayInsideOfK) {
    const std::vector<int32_t> wild = {INT32_MIN, 127, -1, INT32_MAX, 129, 8 * 128 + 1, 3 * 128, 3 * 128 - 1, 1 << 30};
    for (const int32_t begin : wild)
        for (const int32_t end : wild) {
            const KRange range = KGroupLayout{.groups = 1, .k_blocks = 8}.range(begin, end);
            EXPECT_LE(range.begin, range.end) << begin << ", " << end;
            EXPECT_LE(range.end, 8u) << begin << ", " << end;
        }
    EXPECT_EQ((KGroupLayout{.groups = 1, .k_blocks = 8}.range(-5, INT32_MAX)), (KRange{0, 8}));
}

}  // namespace
}  // namespace finegemm
