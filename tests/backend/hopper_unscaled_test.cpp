// What the Hopper backend launches for A and B of each type without scales. Layer tests.
#include <fmt/format.h>

#include <finegemm/gemm/arithmetic.h>
#include <finegemm/gemm/kernel_plan.h>
#include <finegemm/gemm/schedule.h>

#include "plan/elements.h"
#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_unscaled_test {
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

/// Calls body(configuration, type of A and B, type of D) for every kernel of a grouping and a layout.
template <typename Body>
void for_each_kernel(Grouping grouping, const Body& body, Major a = Major::K, Major b = Major::K) {
    for (const ElementType& of : kElementTypes) {
        if (!is_unscaled(of)) continue;
        int seen = 0;
        for (const DType d : of.results) {
            if (!find_type(d)) continue;
            for (const GemmConfig& c : plan::candidates({.grouping = grouping,
                                                         .a = unscaled(*of.operand, a),
                                                         .b = unscaled(*of.operand, b),
                                                         .output = *find_type(d)->output})) {
                SCOPED_TRACE(plan::name_of(c));
                body(c, of.dtype, d);
                ++seen;
            }
        }
        EXPECT_GT(seen, 3);
    }
}

/// Boxes of 64 elements, 128 bytes, and every k-block of them.
void expect_loads_of_two_bytes(const GemmParams& p, const GemmConfig& c) {
    EXPECT_EQ(p.k_blocks, 17u) << "K = 1032 has 16 k-blocks of 64 and a part of one";
    EXPECT_EQ(mock::description_of(p.a.whole).box_cols, 64u);
    EXPECT_EQ(mock::description_of(p.b.last).box_cols, 64u);
    EXPECT_EQ(mock::description_of(p.a.whole).row_stride_bytes, 1032u * 2);
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
        EXPECT_EQ(arithmetic_of(c), Arithmetic{}) << "every kernel for groups is batch-invariant";
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

/// Makes columns contiguous, multiples of 8 elements apart.
void store_by_columns(ConstMatrix& x) {
    x.row_stride = 1;
    x.col_stride = (x.rows + 7) / 8 * 8;
}

/// Boxes of 64 rows of K, each 64 columns of M or N wide.
void expect_boxes_of_columns(const TensorMap& map, const ConstMatrix& x) {
    const mock::Description d = mock::description_of(map);
    EXPECT_EQ(std::tuple(d.data, d.rows, d.cols, d.row_stride_bytes),
              std::tuple(x.data, static_cast<uint64_t>(x.cols), static_cast<uint64_t>(x.rows),
                         static_cast<uint64_t>(x.col_stride * 2)));
    EXPECT_EQ(std::pair(d.box_rows, d.box_cols), std::pair(64u, 64u));
}

TEST_F(HopperUnscaled, LaunchesEveryDenseKernelForColumnsByName) {
    const auto hopper = backend();
    for (const auto& [a, b] : {std::pair{Major::K, Major::MN}, {Major::MN, Major::MN}, {Major::MN, Major::K}})
        for_each_kernel(
            Grouping::None,
            [&, a = a, b = b](const GemmConfig& c, DType of, DType d) {
                GemmArgs args = operands(1000, 1032, 1032, of, d);
                if (a == Major::MN) store_by_columns(args.a);
                if (b == Major::MN) store_by_columns(args.b);
                hopper->gemm({args, {.config = plan::name_of(c)}});
                const SegmentedParams& p = last_launch().gemm;
                EXPECT_EQ(last_launch().entry, entry_of(c));
                if (a == Major::MN) {
                    expect_boxes_of_columns(p.a.whole, args.a);
                    expect_boxes_of_columns(p.a.last, args.a);
                }
                if (b == Major::MN) expect_boxes_of_columns(p.b.whole, args.b);
                const uint32_t a_rows = rows_of_last_tile(1000, c.tile_m, 1), b_rows = b_rows_of_last(c, 1032);
                EXPECT_EQ(p.a_rows_of_last, a == Major::MN ? align_up(a_rows, 64) : a_rows);
                EXPECT_EQ(p.b_rows_of_last, b == Major::MN ? align_up(b_rows, 64) : b_rows);
            },
            a, b);
}

TEST_F(HopperUnscaled, LaunchesEveryKernelForGroupsOfColumnsByName) {
    const auto hopper = backend();
    const auto* const numbers = static_cast<const int32_t*>(address(0x900000000));
    const auto of_rows = [&](const GemmConfig& c, DType of, DType d) {
        GemmArgs one = operands(1000, 1032, 1032, of, d);
        store_by_columns(one.b);
        const Groups groups{.data = numbers, .size = 6, .device = one.d.device};
        hopper->gemm(
            {GroupedGemmArgs{{one.a}, {}, {one.b, 5, 1032 * 1032}, {}, {one.d}, groups}, {.config = plan::name_of(c)}});
        EXPECT_EQ(last_launch().entry, entry_of(c));
        expect_boxes_of_columns(last_launch().grouped.b.whole, one.b);
        EXPECT_EQ(mock::description_of(last_launch().grouped.b.whole).count, 5u);
    };
    for_each_kernel(Grouping::Rows, of_rows, Major::K, Major::MN);
    const auto of_k = [&](const GemmConfig& c, DType of, DType d) {
        GemmArgs one = operands(1000, 1032, 1024, of, d);
        store_by_columns(one.a);
        store_by_columns(one.b);
        const KGroupedGemmArgs args{.a = one.a,
                                    .sfa = {},
                                    .b = one.b,
                                    .sfb = {},
                                    .d = {one.d, 5, 1000 * 1032},
                                    .offsets = numbers,
                                    .groups = 5,
                                    .offsets_device = one.d.device};
        hopper->gemm({args, {.config = plan::name_of(c)}});
        EXPECT_EQ(last_launch().entry, entry_of(c));
        expect_boxes_of_columns(last_launch().k_grouped.a.whole, one.a);
        expect_boxes_of_columns(last_launch().k_grouped.b.whole, one.b);
    };
    for_each_kernel(Grouping::K, of_k, Major::MN, Major::MN);
}

TEST_F(HopperUnscaled, KeepsLaunchesOfEachLayoutApart) {
    const auto hopper = backend();
    std::set<std::string> entries;
    for (int i = 0; i < 2; ++i)
        for (const int columns : {0, 1, 2, 3}) {  // with equal strides: 512 elements
            GemmArgs args = operands(512, 512, 512, DType::BF16, DType::BF16);
            if (columns & 1) store_by_columns(args.a);
            if (columns & 2) store_by_columns(args.b);
            hopper->gemm({args, {}});
            entries.insert(last_launch().entry);
        }
    EXPECT_EQ(entries.size(), 4u);
    EXPECT_EQ(mock->launches.size(), 8u);
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
}  // namespace finegemm::hopper_unscaled_test
