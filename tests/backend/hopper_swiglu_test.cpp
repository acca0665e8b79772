// What the Hopper backend launches for SwiGLU with quantisation. Layer tests.
#include "support/hopper.h"
#include "support/quantize.h"

namespace finegemm::hopper_swiglu_test {
namespace {

class HopperSwiglu : public test::HopperTest {
protected:
    mock::Launch run(GroupForm form, int64_t count, int64_t m, int64_t pairs, const SwigluOptions& options = {},
                     DType dtype = DType::BF16) {
        const Device where{DeviceType::Cuda, 0};
        const auto* const numbers = static_cast<const int32_t*>(test::address(0x5000));
        const SwigluArgs args{
            .x = {{test::address(0x1000), dtype, m, 2 * pairs, 2 * pairs + 32, 1, where}, count, m * 9000},
            .q = {{test::address(0x2000), DType::E4M3, m, pairs, pairs + 16, 1, where}, count, m * 5000},
            .scales = {{test::address(0x3000), DType::F32, m, (pairs + 127) / 128, 1, m, where}, count, m * 70},
            .weights = {test::address(0x4000), DType::F32, count, m, 3 * m, 3, where},
            .groups = {.form = form,
                       .data = form == GroupForm::Whole ? nullptr : numbers,
                       .size = form == GroupForm::Whole ? 0 : count,
                       .alignment = 64,
                       .device = where}};
        hopper_->run(SwigluCall{args, options});
        return last_launch();
    }
    std::unique_ptr<Backend> hopper_ = backend();
};

TEST_F(HopperSwiglu, PassesMatricesGroupsAndOptionsOn) {
    const mock::Launch launch = run(GroupForm::Masked, 3, 40, 528,
                                    {.gate_limit = 7,
                                     .gate_alpha = 1.5f,
                                     .up_offset = 1,
                                     .interleaved = true,
                                     .to_bf16 = true,
                                     .power_of_two_scales = true,
                                     .pdl = true,
                                     .stream = test::address(0x50)});
    const SwigluParams& p = launch.swiglu;
    EXPECT_EQ(std::tuple(launch.entry, launch.stream, launch.block, launch.programmatic),
              std::tuple("FineGEMM_swiglu_quantize_BF16", test::address(0x50), 128u, true));
    EXPECT_EQ(std::tuple<const void*>(p.x), std::tuple(test::address(0x1000)));
    EXPECT_EQ(std::tuple<const void*>(p.q), std::tuple(test::address(0x2000)));
    EXPECT_EQ(std::tuple<const void*>(p.scales), std::tuple(test::address(0x3000)));
    EXPECT_EQ(std::tuple<const void*>(p.weights), std::tuple(test::address(0x4000)));
    EXPECT_EQ(std::tuple(p.x_row_stride, p.q_row_stride, p.scale_row_stride, p.scale_col_stride),
              std::tuple(1088, 544, 1, 40));
    EXPECT_EQ(std::tuple(p.x_stride, p.q_stride, p.scale_stride, p.weight_matrix_stride, p.weight_stride),
              std::tuple(360'000, 200'000, 2800, 120, 3));
    EXPECT_EQ(std::tuple(p.rows, p.cols, p.matrices, p.across.divisor), std::tuple(40u, 528u, 3u, 3u));
    EXPECT_EQ(std::tuple(p.interleaved, p.power_of_two, p.rule.to_bf16), std::tuple(1u, 1u, 1u));
    EXPECT_EQ(std::tuple(p.rule.limit, p.rule.slope, p.rule.offset), std::tuple(7.0f, 1.5f, 1.0f));
    EXPECT_EQ(std::tuple(p.groups.stacked, p.groups.groups, p.groups.rows), std::tuple(true, 3u, 40u));
    EXPECT_EQ(launch.grid, 3u * 8) << "a CTA takes 16 units, of which a row has three";
    const mock::Launch sums = run(GroupForm::PrefixSums, 1, 40, 528, {}, DType::F32);
    EXPECT_EQ(std::tuple(sums.entry, sums.programmatic), std::tuple("FineGEMM_swiglu_quantize_F32", false));
    EXPECT_EQ(std::tuple(sums.swiglu.groups.alignment, sums.swiglu.groups.stacked), std::tuple(64u, false));
    EXPECT_EQ(std::tuple(sums.swiglu.rule.limit, sums.grid), std::tuple(test::kInfinity, 13u));
}

TEST_F(HopperSwiglu, HasNoMoreCtasThanFitWhereMasksOrABudgetLeaveWorkOut) {
    EXPECT_EQ(run(GroupForm::Whole, 1, 100'000, 2048).grid, 50'000u);
    EXPECT_EQ(run(GroupForm::Masked, 32, 4096, 2048).grid, 132u * 8);
    EXPECT_EQ(run(GroupForm::Whole, 1, 100'000, 2048, {.num_sms = 20}).grid, 160u);
    EXPECT_EQ(run(GroupForm::Whole, 1, INT32_MAX, 128).grid, 1u << 20);
    EXPECT_EQ(run(GroupForm::Whole, 3, 1, 16).grid, 3u);
}

TEST_F(HopperSwiglu, SaysWhereEveryUnitIsWhole) {
    EXPECT_EQ(run(GroupForm::Whole, 1, 40, 512).swiglu.whole, 1u);
    EXPECT_EQ(run(GroupForm::Whole, 1, 40, 384).swiglu.whole, 0u) << "two blocks of BF16 are a unit";
    EXPECT_EQ(run(GroupForm::Whole, 1, 40, 384, {}, DType::F32).swiglu.whole, 1u);
    EXPECT_EQ(run(GroupForm::Whole, 1, 40, 528, {}, DType::F32).swiglu.whole, 0u);
    EXPECT_EQ(run(GroupForm::Whole, 1, 40, 512, {.interleaved = true}).swiglu.whole, 0u);
}

TEST_F(HopperSwiglu, IsPlainWithoutAnyOption) {
    const Device where{DeviceType::Cuda, 0};
    const auto plain = [&](const SwigluOptions& options, const void* weights = nullptr) {
        const SwigluArgs args{.x = {{test::address(0x1000), DType::BF16, 4, 256, 256, 1, where}},
                              .q = {{test::address(0x2000), DType::E4M3, 4, 128, 128, 1, where}},
                              .scales = {{test::address(0x3000), DType::F32, 4, 1, 1, 1, where}},
                              .weights = {weights, DType::F32, 1, 4, 4, 1, where}};
        hopper_->run(SwigluCall{args, options});
        return last_launch().swiglu.plain;
    };
    EXPECT_EQ(plain({.interleaved = true, .to_bf16 = true, .power_of_two_scales = true}), 1u);
    EXPECT_EQ(plain({.gate_limit = 7}), 0u);
    EXPECT_EQ(plain({.gate_alpha = 2}), 0u);
    EXPECT_EQ(plain({.up_offset = 1}), 0u);
    EXPECT_EQ(plain({}, test::address(0x4000)), 0u);
}

}  // namespace
}  // namespace finegemm::hopper_swiglu_test
