// The deal of the register file.
#include <gtest/gtest.h>

#include <finegemm/gemm/registers.h>

#include "support/configs.h"

namespace finegemm {
namespace {

TEST(RegisterPlan, DealsOutNoMoreThanThereIs) {
    for (const GemmConfig& c : test::kConfigs) {
        SCOPED_TRACE(test::describe(c));
        const RegisterPlan p = register_plan(c);
        EXPECT_LE(p.launch * c.threads() * c.ctas_per_sm, kRegisterFile);
        EXPECT_LE(p.load * 128 + p.math * 128 * c.math_warpgroups, p.launch * c.threads())
            << "setmaxnreg.inc would wait for ever";
    }
}

TEST(RegisterPlan, CountsAreWhatSetmaxnregTakes) {
    for (const GemmConfig& c : test::kConfigs)
        for (const uint32_t count : {register_plan(c).launch, register_plan(c).load, register_plan(c).math}) {
            EXPECT_EQ(count % 8, 0u) << test::describe(c);
            EXPECT_GE(count, 24u);
            EXPECT_LE(count, 256u);
        }
}

TEST(RegisterPlan, MathWarpsHoldTheirAccumulatorsAndABlock) {
    for (const GemmConfig& c : test::kConfigs) {
        const uint32_t block = c.tile_n / 2, sums = c.wgmmas_m() * block;
        EXPECT_LE(sums + blocks_in_flight(c) * block, register_plan(c).math) << test::describe(c);
    }
}

TEST(RegisterPlan, WideTilesTakeWhatProducersDoNotNeed) {
    static_assert(register_plan({.tile_m = 128, .tile_n = 208, .math_warpgroups = 2}).math == 224);
    static_assert(register_plan({.tile_m = 128, .tile_n = 224, .math_warpgroups = 2}).math == 240);
    static_assert(register_plan({.tile_m = 128, .tile_n = 224, .math_warpgroups = 2}).load == 24);
}

TEST(RegisterPlan, TensorCoresMultiplyScalesWhereFactorsFit) {
    constexpr auto kWith = [](GemmConfig c) {
        c.b_scales = ScaleBlocks::Rows;
        return c;
    };
    static_assert(tensor_core_scales(kWith({.tile_m = 128, .tile_n = 128, .math_warpgroups = 2})));
    static_assert(!tensor_core_scales({.tile_m = 128, .tile_n = 128, .math_warpgroups = 2}), "few scales");
    static_assert(!tensor_core_scales(kWith({.tile_m = 128, .tile_n = 192, .math_warpgroups = 2})), "no registers");
    static_assert(!tensor_core_scales(kWith({.tile_m = 256, .tile_n = 128, .math_warpgroups = 2})),
                  "two stacked WGMMAs");
    static_assert(!tensor_core_scales(kWith({.tile_m = 128, .tile_n = 64, .math_warpgroups = 2})), "narrow");
}

TEST(RegisterPlan, TwoBlocksAreInFlightWhereTheyFit) {
    static_assert(blocks_in_flight({.tile_m = 64, .tile_n = 64, .math_warpgroups = 1}) == 2);
    static_assert(blocks_in_flight({.tile_m = 128, .tile_n = 192, .math_warpgroups = 2}) == 1,
                  "three times 96 registers");
    static_assert(blocks_in_flight({.tile_m = 256, .tile_n = 64, .math_warpgroups = 2}) == 1, "two stacked WGMMAs");
}

}  // namespace
}  // namespace finegemm
