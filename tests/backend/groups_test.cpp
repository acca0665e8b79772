// From arguments to rows: the layout of each form, and the rows of each group.
#include "ops/gemm/groups.h"

#include <gtest/gtest.h>

#include <climits>

#include "support/grouped.h"

namespace finegemm::groups_test {
namespace {

using test::Grouping;

GroupLayout layout_of(const Grouping& g) {
    GroupedGemmArgs args{.a = {}, .sfa = {}, .b = {}, .sfb = {}, .d = {}, .groups = g.view()};
    args.a.matrix.rows = g.m;
    args.b.count = g.groups;
    return row_layout_of({args, {}});
}
std::vector<GroupRows> rows_of(const Grouping& g) { return rows_by_group(layout_of(g)); }

TEST(GroupLayoutOf, GivesEachFormItsFieldsAndNoOther) {
    const Grouping offsets{GroupForm::Offsets, 2, 300, 64, {1, 2, 3}};
    const GroupLayout o = layout_of(offsets);
    EXPECT_EQ(o.ends, &offsets.numbers[1]);
    EXPECT_TRUE(!o.indices && o.first_is_given && !o.stacked && o.alignment == 1);
    EXPECT_TRUE(o.groups == 2 && o.rows == 300);

    const Grouping indices{GroupForm::Indices, 2, 3, 64, {0, 0, 1}};
    const GroupLayout i = layout_of(indices);
    EXPECT_EQ(i.indices, indices.numbers.data());
    EXPECT_TRUE(!i.ends && !i.first_is_given && !i.stacked && i.alignment == 64);

    const Grouping sums{GroupForm::PrefixSums, 2, 300, 64, {1, 66}};
    const GroupLayout s = layout_of(sums);
    EXPECT_EQ(s.ends, sums.numbers.data());
    EXPECT_TRUE(!s.indices && !s.first_is_given && !s.stacked && s.alignment == 64);

    const Grouping masked{GroupForm::Masked, 2, 300, 64, {1, 300}};
    const GroupLayout m = layout_of(masked);
    EXPECT_EQ(m.ends, masked.numbers.data());
    EXPECT_TRUE(!m.indices && !m.first_is_given && m.stacked && m.alignment == 1);
}

TEST(GroupRows, AreTheRowsOfEachGroupThatHasSome) {
    EXPECT_EQ(rows_of({GroupForm::Offsets, 3, 128, 128, {5, 9, 9, 100}}),
              (std::vector<GroupRows>{{0, {5, 9}}, {2, {9, 100}}}));
    EXPECT_EQ(rows_of({GroupForm::PrefixSums, 3, 512, 128, {3, 128, 300}}),
              (std::vector<GroupRows>{{0, {0, 3}}, {2, {128, 300}}}));
    EXPECT_EQ(rows_of({GroupForm::Masked, 3, 64, 128, {3, 0, 64}}),
              (std::vector<GroupRows>{{0, {0, 3}}, {2, {0, 64}}}));
    EXPECT_EQ(rows_of({GroupForm::Offsets, 2, 0, 128, {0, 0, 0}}), std::vector<GroupRows>());
}

TEST(GroupRows, OfIndicesHaveThePaddingToo) {
    EXPECT_EQ(rows_of({GroupForm::Indices, 3, 7, 64, {2, 2, -1, -1, 0, 3, INT_MIN}}),
              (std::vector<GroupRows>{{2, {0, 2}}, {-1, {2, 4}}, {0, {4, 5}}, {-1, {5, 7}}}));
}

TEST(GroupRows, CoverValidRowsExactly) {
    for (const GroupForm form : test::kAllForms)
        for (uint32_t seed = 0; seed < 50; ++seed) {
            const Grouping g = test::random_grouping(form, 5, 400, 64, seed);
            std::vector<int64_t> group_of(static_cast<size_t>(g.stacks() * g.m), -1);
            for (const auto& [group, rows] : rows_of(g))
                std::fill_n(group_of.begin() + (g.masked() ? group * g.m : 0) + rows.begin, rows.size(), group);
            for (size_t r = 0; r < group_of.size(); ++r)
                ASSERT_EQ(group_of[r], g.group_of(static_cast<int64_t>(r))) << "seed " << seed << ", row " << r;
        }
}

TEST(GroupRows, OfAnyNumbersAreRowsThatExistAndNoneTwice) {
    std::mt19937 random(7);
    for (const GroupForm form : test::kAllForms)
        for (int trial = 0; trial < 300; ++trial) {
            Grouping g{form, 6, 150, 64, std::vector<int32_t>(150)};
            for (int32_t& x : g.numbers)
                x = random() % 4 == 0 ? static_cast<int32_t>(random()) : static_cast<int32_t>(random() % 200) - 20;
            std::vector<int> times(static_cast<size_t>(g.stacks() * g.m));
            for (const auto& [group, rows] : rows_of(g)) {
                ASSERT_LT(rows.begin, rows.end);
                ASSERT_LE(rows.end, 150u);
                ASSERT_TRUE(group < 6 && (group >= 0 || form == GroupForm::Indices));
                for (uint32_t r = rows.begin; r < rows.end; ++r)
                    ++times[static_cast<size_t>((g.masked() ? group * g.m : 0) + r)];
            }
            EXPECT_LE(*std::ranges::max_element(times), 1);
        }
}

}  // namespace
}  // namespace finegemm::groups_test
