// What the checks of grouped GEMMs let through, and what happens then. Layer tests.
#include <gtest/gtest.h>

#include "api/allocations.h"
#include "ops/gemm/checks.h"
#include "support/cpu.h"
#include "support/error_of.h"
#include "support/grouped.h"

namespace finegemm::test {
namespace {

class Grouped : public testing::Test {
protected:
    static void put_on_gpu(GroupedGemmArgs& args) {
        for (Device* d : {&args.a.matrix.device, &args.sfa.matrix.device, &args.b.matrix.device,
                          &args.sfb.matrix.device, &args.d.matrix.device, &args.groups.device})
            *d = {DeviceType::Cuda, 0};
    }
    Context context{cpu_options()};
};

TEST_F(Grouped, TakesEveryForm) {
    for (const GroupForm form : kAllForms) {
        GroupedProblem p(random_grouping(form, 4, 300, 64, 3), 136, 272, 1, 16, 2);
        grouped_gemm(context, p.args());
        for (int64_t r = 0; r < p.rows(); ++r)
            EXPECT_EQ(p.row_is(r, kUntouched), p.grouping.group_of(r) < 0 && form != GroupForm::Indices) << r;
        EXPECT_TRUE(p.d.surroundings_intact());
    }
}

TEST_F(Grouped, DoesNothingWithoutRowsOrColumnsNotEvenLookForADevice) {
    for (const GroupForm form : kAllForms)
        for (const bool rows : {true, false}) {
            GroupedProblem p(random_grouping(form, 2, 16, 64, 3), 64, 128, 1);
            GroupedGemmArgs args = p.args();
            if (rows) args.a.matrix.rows = args.sfa.matrix.rows = args.d.matrix.rows = 0;
            else args.b.matrix.rows = args.sfb.matrix.rows = args.d.matrix.cols = 0;
            if (rows && form == GroupForm::Indices) args.groups.size = 0, args.groups.data = nullptr;
            put_on_gpu(args);
            EXPECT_NO_THROW(grouped_gemm(context, args)) << static_cast<int>(form);
            EXPECT_TRUE(p.row_is(0, kUntouched));
        }
}

TEST_F(Grouped, SaysThatThereIsNoDriverForMatricesOnAGpu) {
    GroupedProblem p({GroupForm::Offsets, 1, 16, 128, {0, 16}}, 64, 128, 1);
    GroupedGemmArgs args = p.args();
    put_on_gpu(args);
    const Error e = error_of([&] { grouped_gemm(context, args); });
    EXPECT_EQ(e.code(), Errc::Unsupported);
    EXPECT_TRUE(contains(e, "run on the CPU")) << e.what();
}

TEST_F(Grouped, LooksAtNoStrideThatNoStepIsTakenWith) {
    const Grouping one{GroupForm::Masked, 1, 16, 128, {9}};
    GroupedProblem p(one, 64, 128, 1), q(one, 64, 128, 1);
    GroupedGemmArgs args = p.args();
    args.a.stride = args.d.stride = -7;
    args.sfa.stride = -1;
    args.b.stride = 3;
    args.sfb.stride = INT64_MIN;
    args.groups.alignment = 3;  // of no meaning to this form
    grouped_gemm(context, args);
    grouped_gemm(context, q.args());
    EXPECT_TRUE(std::equal(p.d.data(), p.d.data() + 16 * 64, q.d.data()));
}

TEST_F(Grouped, TakesOneMatrixForAllGroupsByStridesOfZero) {
    const Grouping four{GroupForm::Masked, 4, 16, 128, {9, 16, 0, 1}};
    GroupedProblem p(four, 64, 128, 1);
    GroupedGemmArgs args = p.args();
    args.b.stride = args.sfb.stride = args.a.stride = args.sfa.stride = 0;
    args.groups.data = nullptr;
    const std::vector<int32_t> nine(4, 9);  // the first group's rows
    args.groups.data = nine.data();
    grouped_gemm(context, args);
    for (int64_t r = 0; r < 9; ++r)
        for (int64_t g = 1; g < 4; ++g)
            EXPECT_TRUE(std::equal(&p.d.at(r, 0), &p.d.at(r, 0) + 64, &p.d.at(g * 16 + r, 0))) << g << ", " << r;
    EXPECT_FALSE(p.row_is(8, kUntouched));
}

TEST_F(Grouped, TakesMatricesOfDThatLieInOneAnotherIfTheirRowsDoNot) {
    GroupedProblem p({GroupForm::Masked, 3, 16, 128, {9, 16, 1}}, 64, 128, 1);
    GroupedGemmArgs args = p.args();
    args.d.matrix.row_stride = 3 * 64, args.d.stride = 64;
    EXPECT_NO_THROW(check_gemm({args, {}}));
    args.d.matrix.row_stride = 2 * 64;
    EXPECT_THROW(check_gemm({args, {}}), Error);
    args.d.matrix.row_stride = 64, args.d.stride = 16 * 64;
    EXPECT_NO_THROW(check_gemm({args, {}}));
    args.d.stride = 16 * 64 - 8;
    EXPECT_THROW(check_gemm({args, {}}), Error);
}

TEST_F(Grouped, KnowsWhereStacksEnd) {
    GroupedProblem p({GroupForm::Masked, 3, 16, 128, {9, 16, 1}}, 64, 128, 1);
    GroupedGemmArgs args = p.args();
    const auto at = [](void* d, int64_t bytes) { return static_cast<uint8_t*>(d) + bytes; };
    args.sfa.matrix.data = at(args.d.matrix.data, 3 * 16 * 64 * 2);  // right behind D
    EXPECT_NO_THROW(check_gemm({args, {}}));
    args.sfa.matrix.data = at(args.d.matrix.data, 3 * 16 * 64 * 2 - 4);
    EXPECT_TRUE(contains(error_of([&] { check_gemm({args, {}}); }), "d: shares 4 bytes with sfa"));
    args.sfa.matrix.data = at(args.d.matrix.data, -3 * 16 * 4);  // right before it: 16 scales in each
    EXPECT_NO_THROW(check_gemm({args, {}}));
    args.sfa.matrix.data = at(args.d.matrix.data, -3 * 16 * 4 + 4);
    EXPECT_TRUE(contains(error_of([&] { check_gemm({args, {}}); }), "d: shares 4 bytes with sfa"));
}

TEST_F(Grouped, LooksAtNumbersOnlyWhenAsked) {
    GroupedProblem p({GroupForm::Offsets, 2, 16, 128, {0, 8, 16}}, 64, 128, 1);
    p.grouping.numbers = {0, 9, 8};
    GemmOptions asked;
    asked.check_values = true;
    EXPECT_TRUE(contains(error_of([&] { grouped_gemm(context, p.args(), asked); }), "groups: offsets[2] is 8"));
    EXPECT_TRUE(p.row_is(0, kUntouched));
    EXPECT_NO_THROW(grouped_gemm(context, p.args()));
}

TEST_F(Grouped, IsCheckedWithoutAllocation) {
    GroupedProblem p({GroupForm::Masked, 3, 16, 128, {9, 16, 1}}, 64, 128, 1);
    const GroupedGemmArgs args = p.args();
    const GemmOptions plain;
    const int64_t before = allocations();
    check_gemm({args, plain});
    EXPECT_EQ(allocations(), before);
}

}  // namespace
}  // namespace finegemm::test
