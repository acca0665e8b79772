// Routing through the C and C++ APIs. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/routing.h>

#include "api/routing_misuses.h"

namespace finegemm::test {
namespace {

// Programs were compiled with these.
static_assert(FINEGEMM_I64 == static_cast<int>(DType::I64));
static_assert(sizeof(finegemm_route_args) == 4 * 56 + 40 && offsetof(finegemm_route_args, form) == 4 * 56);
static_assert(sizeof(finegemm_permute_quantize_args) == 3 * 56 + 2 * 72);
static_assert(sizeof(finegemm_combine_args) == 72 + 3 * 56 && offsetof(finegemm_combine_args, out) == 72 + 2 * 56);
static_assert(offsetof(finegemm_route_options, stream) == 16 && offsetof(finegemm_permute_options, stream) == 24);
static_assert(offsetof(finegemm_combine_options, stream) == 16);

TEST(RouteCall, GivesEachChoiceARowOfItsExpert) {
    const CContext context;
    RouteCallInC c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    constexpr int32_t kInverse[] = {4, 0, -1, 5, 1, -1}, kPermutation[] = {1, 4, -1, -1, 0, 3, -1, -1, -1};
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(c.inverse.at(i / 2, i % 2), kInverse[i]) << i;
    for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(c.permutation.at(0, i), kPermutation[i]) << i;
    EXPECT_EQ(std::tuple(c.numbers.at(0, 0), c.numbers.at(0, 1)), std::tuple(2, 6));
}

TEST(RouteCall, WithoutTokensWritesGroupsWithoutRows) {
    const CContext context;
    RouteCallInC c;
    c.args.ids.rows = c.args.inverse.rows = 0;
    c.args.ids.data = c.args.inverse.data = nullptr;
    c.numbers.at(0, 0) = c.numbers.at(0, 1) = c.permutation.at(0, 8) = 77;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(std::tuple(c.numbers.at(0, 0), c.numbers.at(0, 1), c.permutation.at(0, 8)), std::tuple(0, 0, -1));
}

TEST(PermuteCall, QuantisesATokenWhereItsRowsAre) {
    const CContext context;
    PermuteCallInC c;
    c.scales.at(2, 0) = c.scales.at(8, 0) = -1;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    constexpr std::pair<int64_t, float> kScales[] = {{0, 1}, {1, 3}, {2, -1}, {4, 1}, {5, 2}, {8, -1}};
    for (const auto& [row, scale] : kScales) EXPECT_EQ(c.scales.at(row, 0), scale) << row;
    for (const int64_t row : {0, 1, 4, 5}) EXPECT_EQ(c.q.at(row, 127), 0x7e) << "448, row " << row;
}

TEST(CombineCall, AddsUpWhatATokensChoicesHave) {
    const CContext context;
    CombineCallInC c;
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(float_of_bf16(c.out.at(0, 7)), 0.5f * 4 + 1.0f * 0);
    EXPECT_EQ(float_of_bf16(c.out.at(1, 0)), 2.0f * 5);
    EXPECT_EQ(float_of_bf16(c.out.at(2, 3)), 2.5f * 1);
    c.args.weights = {};
    ASSERT_EQ(c.run(context.get()), FINEGEMM_OK) << c.error.message;
    EXPECT_EQ(float_of_bf16(c.out.at(1, 0)), 5.0f) << "without weights";
}

TEST(RoutingCalls, AreLoggedWithWhatTheyAreOf) {
    std::vector<std::string> lines;
    Options options = cpu_options();
    options.log = [&](const LoggedCall& call) { lines.push_back(call.line); };
    Context context(options);
    RouteCallInC r;
    route(context,
          {.ids = r.ids.view(), .inverse = r.inverse.view(), .numbers = r.numbers.view(), .experts = 2, .rows = 9});
    PermuteCallInC p;
    permute_quantize(context,
                     {.x = p.x.view(), .inverse = p.inverse.view(), .q = {p.q.view()}, .scales = {p.scales.view()}});
    CombineCallInC c;
    combine(context, {.y = {c.y.view()}, .inverse = c.inverse.view(), .out = c.out.view()});
    EXPECT_EQ(lines,
              (std::vector<std::string>{"route 3x2 to 2 experts, prefix_sums",
                                        "permute_quantize 3x128 bf16 to 9 rows e4m3", "combine 9 rows to 3x8 of 2"}));
}

}  // namespace
}  // namespace finegemm::test
