// The validation mode's look at groups: what breaks the rules, and what is said then.
#include "engine/check_values.h"

#include <gtest/gtest.h>

#include <cmath>

#include <fmt/format.h>

#include "engine/cpu.h"
#include "support/error_of.h"
#include "support/grouped.h"
#include "support/k_grouped.h"

namespace finegemm::check_groups_test {
namespace {

using test::GroupedProblem;
using test::Grouping;

GroupedGemmArgs args_of(const Grouping& g) {
    GroupedGemmArgs args{.a = {}, .sfa = {}, .b = {}, .sfb = {}, .d = {}, .groups = g.view()};
    args.a.matrix.rows = g.m;
    args.b.count = g.groups;
    return args;
}
std::string said(const Grouping& g) {
    const Error error = test::error_of([&] { check_group_numbers({args_of(g), {}}); });
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
}

TEST(CheckGroups, OffsetsAscendInsideOfM) {
    EXPECT_EQ(said({GroupForm::Offsets, 3, 100, 128, {-4, 0, 0, 0}}),
              "groups: offsets[0] is -4, must be from 0 to M = 100; look at what computed it");
    EXPECT_EQ(said({GroupForm::Offsets, 3, 100, 128, {0, 40, 100, 101}}),
              "groups: offsets[3] is 101, must be from 0 to M = 100; look at what computed it");
    EXPECT_EQ(said({GroupForm::Offsets, 3, 100, 128, {0, 40, 39, 30}}),
              "groups: offsets[2] is 39, must be at least the 40 before it; give a group without rows the same number "
              "twice");
}

TEST(CheckGroups, PrefixSumsAreBehindTheBeginsOfTheirGroups) {
    EXPECT_EQ(said({GroupForm::PrefixSums, 2, 1000, 128, {5, -1}}),
              "groups: prefix_sums[1] is -1, must be from 0 to M = 1000; look at what computed it");
    EXPECT_EQ(said({GroupForm::PrefixSums, 2, 1000, 128, {1001, 0}}),
              "groups: prefix_sums[0] is 1001, must be from 0 to M = 1000; look at what computed it");
    EXPECT_EQ(said({GroupForm::PrefixSums, 3, 1000, 128, {130, 256, 255}}),
              "groups: prefix_sums[2] is 255, must be at least 256, where its group begins: 256 before it, and "
              "alignment 128; give a group without rows its begin");
    EXPECT_EQ(said({GroupForm::PrefixSums, 2, 1000, 128, {130, 140}}),
              "groups: prefix_sums[1] is 140, must be at least 256, where its group begins: 130 before it, and "
              "alignment 128; give a group without rows its begin");
}

TEST(CheckGroups, MasksAreRowsOfAStack) {
    EXPECT_EQ(said({GroupForm::Masked, 3, 64, 128, {64, 65, 0}}),
              "groups: masks[1] is 65, must be from 0 to M = 64; look at what computed it");
    EXPECT_EQ(said({GroupForm::Masked, 3, 64, 128, {0, 0, -1}}),
              "groups: masks[2] is -1, must be from 0 to M = 64; look at what computed it");
}

TEST(CheckGroups, IndicesAreGroupsOrMinusOne) {
    EXPECT_EQ(said({GroupForm::Indices, 2, 3, 64, {1, 2, 0}}),
              "groups: indices[1] is 2, must be from 0 to 1, or -1 for padding; look at what computed it");
    EXPECT_EQ(said({GroupForm::Indices, 2, 3, 64, {1, 1, -2}}),
              "groups: indices[2] is -2, must be from 0 to 1, or -1 for padding; look at what computed it");
}

TEST(CheckGroups, IndicesChangeAtMultiplesOfTheAlignment) {
    Grouping g{GroupForm::Indices, 4, 200, 64, std::vector<int32_t>(200, 3)};
    g.numbers[70] = 2;
    EXPECT_EQ(said(g),
              "groups: indices[70] is 2, but 3 before it: groups begin at multiples of 64 and have their "
              "padding behind their rows; begin this one at row 128, with -1 before it");
    std::fill_n(&g.numbers[64], 64, 1);
    EXPECT_NO_THROW(check_group_numbers({args_of(g), {}}));
    g.numbers[100] = -1;
    EXPECT_TRUE(said(g).starts_with("groups: indices[101] is 1, but -1 before it: ")) << said(g);
    std::fill_n(&g.numbers[64], 136, -1);
    EXPECT_NO_THROW(check_group_numbers({args_of(g), {}}));
    g.alignment = 128;
    EXPECT_NO_THROW(check_group_numbers({args_of(g), {}}));
    std::fill_n(&g.numbers[64], 64, 1);
    EXPECT_TRUE(said(g).starts_with("groups: indices[64] is 1, but 3 before it: ")) << said(g);
}

TEST(CheckGroups, ValidNumbersPass) {
    for (const GroupForm form : test::kAllForms)
        for (uint32_t seed = 0; seed < 50; ++seed) {
            const Grouping g = test::random_grouping(form, 5, 500, 64, seed);
            EXPECT_NO_THROW(check_group_numbers({args_of(g), {}})) << static_cast<int>(form) << ", seed " << seed;
        }
}

TEST(CheckGroups, ScalesOfRowsWithAGroupAreLookedAtAndNoOthers) {
    for (const GroupForm form : test::kAllForms) {
        // The rows without a group have scales of NaN.
        GroupedProblem p(test::random_grouping(form, 3, 200, 64, 4), 136, 272, 1, 16, 2);
        const auto cpu = make_cpu_backend({});
        EXPECT_NO_THROW(cpu->check_values({p.args(), {}}));
        int64_t row = p.rows() - 1;
        while (p.grouping.group_of(row) < 0) --row;
        p.sfa.at(p.buffer_row(row), 2) = -3;
        const std::string at =
            p.grouping.masked() ? fmt::format("{}, {}", row / 200, row % 200) : fmt::format("{}", row);
        const Error error = test::error_of([&] { cpu->check_values({p.args(), {}}); });
        EXPECT_TRUE(test::contains(error, "sfa[" + at + ", 2] is -3: ")) << error.what();
    }
}

TEST(CheckGroups, ScalesOfBAreNamedByTheirGroup) {
    GroupedProblem p({GroupForm::Offsets, 3, 4, 128, {0, 4, 4, 4}}, 136, 272, 1, 16, 2);
    p.sfb.at(2 * (2 + 2) + 1, 2) = HUGE_VALF;
    const Error error = test::error_of([&] { make_cpu_backend({})->check_values({p.args(), {}}); });
    EXPECT_TRUE(test::contains(error, "sfb[2, 1, 2] is inf: ")) << error.what();
}

std::string said_of_offsets(std::vector<int32_t> offsets) {
    const KGroupedGemmArgs args{.a = {.rows = 16, .cols = 1024},
                                .sfa = {},
                                .b = {},
                                .sfb = {},
                                .d = {},
                                .offsets = offsets.data(),
                                .groups = static_cast<int64_t>(offsets.size()) - 1,
                                .offsets_device = {}};
    return test::error_of([&] { check_group_numbers({args, {}}); }).what();
}

TEST(CheckKGroups, OffsetsAreAscendingMultiplesOf128InsideOfK) {
    EXPECT_EQ(said_of_offsets({-128, 0, 128}),
              "offsets: [0] is -128, must be from 0 to K = 1024; look at what computed it");
    EXPECT_EQ(said_of_offsets({0, 128, 1152}),
              "offsets: [2] is 1152, must be from 0 to K = 1024; look at what computed it");
    EXPECT_EQ(said_of_offsets({0, 100, 128}), "offsets: [1] is 100, must be a multiple of 128; pad groups with zeros");
    EXPECT_EQ(said_of_offsets({256, 512, 384}),
              "offsets: [2] is 384, must be at least the 512 before it; give a group "
              "without k the same number twice");
}

TEST(CheckKGroups, ScalesOfKWithAGroupAreLookedAtAndNoOthers) {
    test::KGroupedProblem p(10, 16, 1024, {256, 256, 512, 768}, 1, 16);  // NaN before 256 and from 768 on
    const auto cpu = make_cpu_backend({});
    EXPECT_NO_THROW(cpu->check_values({p.args(), {}}));
    p.sfb.at(15, 5) = -3;
    Error error = test::error_of([&] { cpu->check_values({p.args(), {}}); });
    EXPECT_TRUE(test::contains(error, "sfb[15, 5] is -3: ")) << error.what();
    p.sfa.at(3, 2) = HUGE_VALF;
    error = test::error_of([&] { cpu->check_values({p.args(), {}}); });
    EXPECT_TRUE(test::contains(error, "sfa[3, 2] is inf: ")) << error.what();
}

}  // namespace
}  // namespace finegemm::check_groups_test
