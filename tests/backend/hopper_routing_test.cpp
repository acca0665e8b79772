// What the Hopper backend launches for routing. Layer tests.
#include "support/hopper.h"

namespace finegemm::hopper_routing_test {
namespace {

using test::address;

class HopperRouting : public test::HopperTest {
protected:
    static constexpr Device kGpu{DeviceType::Cuda, 0};
    mock::Launch route(int64_t tokens, GroupForm form, DType ids = DType::I64, bool pdl = false) {
        const int64_t numbers = form == GroupForm::Offsets ? 33 : 32;
        const RouteArgs args{.ids = {address(0x1000), ids, tokens, 8, 11, 1, kGpu},
                             .inverse = {address(0x2000), DType::I32, tokens, 8, 9, 1, kGpu},
                             .numbers = {address(0x3000), DType::I32, 1, numbers, numbers, 1, kGpu},
                             .form = form,
                             .experts = 32,
                             .first = 64,
                             .rows = 9000,
                             .alignment = 128};
        const RouteOptions options{.stream = address(0x50), .pdl = pdl};
        hopper_->run(RouteCall{args, options});
        return last_launch();
    }
    mock::Launch permute(DType x, DType q, int64_t stacks, int32_t num_sms = 0) {
        const PermuteOptions options{.power_of_two_scales = true, .num_sms = num_sms};
        PermuteQuantizeArgs args{.x = {address(0x1000), x, 300, 7168, 8000, 1, kGpu},
                                 .inverse = {address(0x2000), DType::I32, 300, 8, 9, 1, kGpu},
                                 .q = {{address(0x3000), q, 600, 7168, 7200, 1, kGpu}, stacks, 600 * 7200}};
        if (size_of(q) == 1) args.scales = {{address(0x4000), DType::F32, 600, 56, 1, 604, kGpu}, stacks, 604 * 56};
        if (size_of(x) == 1) args.x_scales = {address(0x5000), DType::F32, 300, 56, 56, 1, kGpu};
        hopper_->run(PermuteCall{args, options});
        return last_launch();
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperRouting, FewChoicesTakeOneCtaAndManyACluster) {
    const mock::Launch few = route(256, GroupForm::PrefixSums), many = route(257, GroupForm::Masked, DType::I32, true);
    EXPECT_EQ(std::tuple(few.entry, few.grid, few.cluster, few.block, few.programmatic),
              std::tuple("FineGEMM_routing_route", 1u, 1u, 1024u, false));
    EXPECT_EQ(std::tuple(many.entry, many.grid, many.cluster, many.block, many.programmatic),
              std::tuple("FineGEMM_routing_route_cluster", 8u, 8u, 1024u, true));
    EXPECT_EQ(std::tuple(few.smem_bytes, many.smem_bytes), std::tuple(sizeof(RouteShared), sizeof(RouteClusterShared)));
    EXPECT_EQ(few.stream, address(0x50));
}

TEST_F(HopperRouting, TellsTheKernelWhereRowsAre) {
    const RouteParams p = route(256, GroupForm::PrefixSums).route;
    EXPECT_EQ(std::tuple<const void*>(p.ids), std::tuple(address(0x1000)));
    EXPECT_EQ(std::tuple<const void*>(p.inverse), std::tuple(address(0x2000)));
    EXPECT_EQ(std::tuple<const void*>(p.numbers), std::tuple(address(0x3000)));
    EXPECT_EQ(p.permutation, nullptr);
    EXPECT_EQ(std::tuple(p.ids_row_stride, p.inverse_row_stride, p.first, p.choices, p.wide),
              std::tuple(11, 9, 64, 2048u, 1u));
    EXPECT_EQ(p.by_k, Divider::by(8));
    EXPECT_EQ(std::tuple(p.places.experts, p.places.rows, p.places.alignment, p.places.form),
              std::tuple(32u, 9000u, 128u, RouteForm::PrefixSums));
    EXPECT_EQ(route(256, GroupForm::Offsets, DType::I32).route.places.alignment, 1u) << "they have none";
    EXPECT_EQ(route(256, GroupForm::Offsets, DType::I32).route.wide, 0u);
}

TEST_F(HopperRouting, RowsTakeAWarpForEachChunk) {
    const mock::Launch launch = permute(DType::BF16, DType::E4M3, 4);
    const PermuteParams& p = launch.permute;
    EXPECT_EQ(std::tuple(launch.entry, launch.block, launch.grid),
              std::tuple("FineGEMM_routing_permute_quantize", 128u, 300u * 7 / 4));
    EXPECT_EQ(std::tuple(p.chosen.tokens, p.chosen.k, p.chosen.row_stride), std::tuple(300u, 8u, 9));
    EXPECT_EQ(std::tuple(p.q_rows.rows, p.q_rows.row_stride, p.q_rows.stride), std::tuple(2400u, 7200, 600 * 7200));
    EXPECT_EQ(std::tuple(p.scale_rows.row_stride, p.scale_rows.stride, p.scale_col_stride),
              std::tuple(1, 604 * 56, 604));
    EXPECT_EQ(std::tuple(p.x_row_stride, p.row_bytes, p.scale_blocks, p.power_of_two, p.tasks),
              std::tuple(16000, 14336u, 56u, 1u, 2100u));
    EXPECT_EQ(permute(DType::BF16, DType::E4M3, 1, 3).grid, 30u) << "ten CTAs of each SM";
}

TEST_F(HopperRouting, WhatKeepsItsTypeIsCopied) {
    const mock::Launch codes = permute(DType::E4M3, DType::E4M3, 1), halves = permute(DType::BF16, DType::BF16, 1);
    EXPECT_EQ(codes.entry, "FineGEMM_routing_permute");
    EXPECT_EQ(std::tuple(codes.permute.row_bytes, codes.permute.x_scale_row_stride), std::tuple(7168u, 56));
    EXPECT_EQ(std::tuple<const void*>(codes.permute.x_scales), std::tuple(address(0x5000)));
    EXPECT_EQ(std::tuple(halves.permute.row_bytes, halves.permute.q_rows.row_stride), std::tuple(14336u, 14400));
    EXPECT_EQ(halves.permute.x_scales, nullptr);
}

TEST_F(HopperRouting, SumsTakeAWarpForEachChunk) {
    const CombineOptions options{.pdl = true};
    const CombineArgs args{.y = {{address(0x1000), DType::BF16, 600, 7168, 7200, 1, kGpu}, 4, 600 * 7200},
                           .inverse = {address(0x2000), DType::I32, 300, 8, 8, 1, kGpu},
                           .weights = {address(0x3000), DType::F32, 300, 8, 9, 1, kGpu},
                           .out = {address(0x4000), DType::BF16, 300, 7168, 7168, 1, kGpu}};
    hopper_->run(CombineCall{args, options});
    const mock::Launch launch = last_launch();
    EXPECT_EQ(std::tuple(launch.entry, launch.block, launch.grid, launch.programmatic),
              std::tuple("FineGEMM_routing_combine", 128u, 300u * 14 / 4, true));
    const CombineParams& p = launch.combine;
    EXPECT_EQ(std::tuple(p.y_rows.rows, p.y_rows.row_stride, p.y_rows.stride), std::tuple(2400u, 14400, 1200 * 7200));
    EXPECT_EQ(std::tuple(p.weight_row_stride, p.out_row_stride, p.row_bytes, p.tasks),
              std::tuple(9, 14336, 14336u, 4200u));
}

}  // namespace
}  // namespace finegemm::hopper_routing_test
