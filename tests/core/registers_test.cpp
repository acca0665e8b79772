// The deal of the register file.
#include <gtest/gtest.h>

#include <finegemm/gemm/kernel_plan.h>

#include "support/configs.h"

namespace finegemm {
namespace {

TEST(RegisterPlan, DealsOutNoMoreThanThereIs) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        const RegisterPlan p = kernel_plan(c).registers;
        EXPECT_LE(p.launch * c.threads() * c.ctas_per_sm, kRegisterFile);
        EXPECT_LE(p.load * 128 + p.math * 128 * c.math_warpgroups, p.launch * c.threads())
            << "setmaxnreg.inc would wait for ever";
    }
}

TEST(RegisterPlan, CountsAreWhatSetmaxnregTakes) {
    for (const GemmConfig& c : test::kConfigs)
        for (const uint32_t count :
             {kernel_plan(c).registers.launch, kernel_plan(c).registers.load, kernel_plan(c).registers.math}) {
            EXPECT_EQ(count % 8, 0u) << test::describe(c);
            EXPECT_GE(count, 24u);
            EXPECT_LE(count, 256u);
        }
}

TEST(RegisterPlan, MathWarpsHoldTheirAccumulatorsAndABlock) {
    for (const GemmConfig& c : test::kConfigs) {
        const uint32_t block = c.tile_n / 2, sums = c.wgmmas_m() * block;
        EXPECT_LE(sums + kernel_plan(c).blocks_in_flight * block, kernel_plan(c).registers.math) << test::describe(c);
    }
}

TEST(RegisterPlan, WideTilesTakeWhatProducersDoNotNeed) {
    static_assert(kernel_plan({.tile_m = 128, .tile_n = 208, .math_warpgroups = 2}).registers.math == 224);
    static_assert(kernel_plan({.tile_m = 128, .tile_n = 224, .math_warpgroups = 2}).registers.math == 240);
    static_assert(kernel_plan({.tile_m = 128, .tile_n = 224, .math_warpgroups = 2}).registers.load == 24);
}

TEST(RegisterPlan, TensorCoresMultiplyScalesWhereFactorsFit) {
    constexpr auto kWith = [](GemmConfig c) {
        c.b = kRowScaled;
        return c;
    };
    static_assert(kernel_plan(kWith({.tile_m = 128, .tile_n = 128, .math_warpgroups = 2})).tensor_core_scales());
    static_assert(!kernel_plan({.tile_m = 128, .tile_n = 128, .math_warpgroups = 2}).tensor_core_scales(),
                  "few scales");
    static_assert(!kernel_plan(kWith({.tile_m = 128, .tile_n = 192, .math_warpgroups = 2})).tensor_core_scales(),
                  "no registers");
    static_assert(!kernel_plan(kWith({.tile_m = 256, .tile_n = 128, .math_warpgroups = 2})).tensor_core_scales(),
                  "two stacked WGMMAs");
    static_assert(!kernel_plan(kWith({.tile_m = 128, .tile_n = 64, .math_warpgroups = 2})).tensor_core_scales(),
                  "narrow");
}

TEST(RegisterPlan, TwoBlocksAreInFlightWhereTheyFit) {
    static_assert(kernel_plan({.tile_m = 64, .tile_n = 64, .math_warpgroups = 1}).blocks_in_flight == 2);
    static_assert(kernel_plan({.tile_m = 128, .tile_n = 192, .math_warpgroups = 2}).blocks_in_flight == 1,
                  "three times 96 registers");
    static_assert(kernel_plan({.tile_m = 256, .tile_n = 64, .math_warpgroups = 2}).blocks_in_flight == 1,
                  "two stacked WGMMAs");
}

}  // namespace
}  // namespace finegemm
