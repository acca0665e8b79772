// What the Hopper backend launches for A and B of each type without scales. Layer tests.
#include <fmt/format.h>

#include <finegemm/gemm/arithmetic.h>
#include <finegemm/gemm/kernel_plan.h>

#include "plan/elements.h"
#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm {
namespace {

using test::address;

class HopperUnscaled : public test::HopperTest {};

GemmArgs operands(int64_t m, int64_t n, int64_t k, DType of, DType d) {
    GemmArgs one = test::operands(m, n, k);
    one.a.dtype = one.b.dtype = of;
    one.sfa = one.sfb = {};
    one.d.dtype = d;
    return one;
}

/// Calls body(configuration, type of A and B, type of D) for every kernel of a grouping.
template <typename Body>
void for_each_kernel(Grouping grouping, const Body& body) {
    for (const ElementType& of : kElementTypes) {
        if (!is_unscaled(of)) continue;
        const Operand operand = unscaled(*of.operand);
        int seen = 0;
        for (const DType d : of.results) {
            if (!find_type(d)) continue;
            for (const GemmConfig& c : plan::candidates(
                     {.grouping = grouping, .a = operand, .b = operand, .output = *find_type(d)->output})) {
                SCOPED_TRACE(plan::name_of(c));
                body(c, of.dtype, d);
                ++seen;
            }
        }
        EXPECT_GT(seen, 4);
    }
}

/// Boxes of 64 elements, 128 bytes, and every k-block of them.
void expect_loads_of_two_bytes(const GemmParams& p, const GemmConfig& c) {
    EXPECT_EQ(p.k_blocks, 17u) << "K = 1032 has 16 k-blocks of 64 and a part of one";
    EXPECT_EQ(mock::description_of(p.a.whole).box_cols, 64u);
    EXPECT_EQ(mock::description_of(p.b.last).box_cols, 64u);
    EXPECT_EQ(mock::description_of(p.a.whole).row_stride_bytes, 1032u * 2);
    EXPECT_EQ(arithmetic_of(c), Arithmetic{}) << "every kernel is batch-invariant";
    EXPECT_EQ(kernel_plan(c).arrivals.full, 1u) << "nobody loads scales";
}

TEST_F(HopperUnscaled, LaunchesEveryDenseKernelByName) {
    const auto hopper = backend();
    for_each_kernel(Grouping::None, [&](const GemmConfig& c, DType of, DType d) {
        hopper->gemm({operands(1000, 1032, 1032, of, d), {.config = plan::name_of(c)}});
        EXPECT_EQ(last_launch().entry, entry_of(c));
        EXPECT_EQ(last_launch().smem_bytes, kernel_plan(c).smem.total);
        expect_loads_of_two_bytes(last_launch().gemm, c);
    });
}

TEST_F(HopperUnscaled, LaunchesEveryKernelForGroupsOfRowsByName) {
    const auto hopper = backend();
    for_each_kernel(Grouping::Rows, [&](const GemmConfig& c, DType of, DType d) {
        const GemmArgs one = operands(1000, 1032, 1032, of, d);
        const GroupedGemmArgs args{
            .a = {one.a},
            .sfa = {},
            .b = {one.b, 5, 1032 * 1032},
            .sfb = {},
            .d = {one.d},
            .groups = {.data = static_cast<const int32_t*>(address(0x900000000)), .size = 6, .device = one.d.device}};
        hopper->gemm({args, {.config = plan::name_of(c)}});
        EXPECT_EQ(last_launch().entry, entry_of(c));
        expect_loads_of_two_bytes(last_launch().gemm, c);
    });
}

TEST_F(HopperUnscaled, LaunchesEveryKernelForGroupsOfKByName) {
    const auto hopper = backend();
    for_each_kernel(Grouping::K, [&](const GemmConfig& c, DType of, DType d) {
        const GemmArgs one = operands(1000, 1032, 1024, of, d);
        const KGroupedGemmArgs args{.a = one.a,
                                    .sfa = {},
                                    .b = one.b,
                                    .sfb = {},
                                    .d = {one.d, 5, 1000 * 1032},
                                    .offsets = static_cast<const int32_t*>(address(0x900000000)),
                                    .groups = 5,
                                    .offsets_device = one.d.device};
        hopper->gemm({args, {.config = plan::name_of(c)}});
        EXPECT_EQ(last_launch().entry, entry_of(c));
        EXPECT_EQ(last_launch().k_grouped.groups.k_blocks, 8u) << "groups have whole blocks of 128";
        EXPECT_EQ(mock::description_of(last_launch().k_grouped.a.whole).box_cols, 64u);
    });
}

TEST_F(HopperUnscaled, TakesNoLaunchOfAProductOfAnotherType) {
    const auto hopper = backend();
    hopper->gemm({test::operands(256, 256, 512), {}});
    const std::string fp8 = last_launch().entry;
    for (const ElementType& of : kElementTypes) {
        if (!is_unscaled(of)) continue;
        hopper->gemm({operands(256, 256, 512, of.dtype, of.results[0]), {}});
        EXPECT_NE(last_launch().entry.find(fmt::format("_{}", of.name)), std::string::npos) << last_launch().entry;
    }
    hopper->gemm({test::operands(256, 256, 512), {}});
    EXPECT_EQ(last_launch().entry, fp8);
}

}  // namespace
}  // namespace finegemm
