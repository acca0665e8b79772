// Types of A, B and D that the planner has kernels for.
#include <gtest/gtest.h>

#include "plan/plan.h"

namespace finegemm::plan {
namespace {

const DeviceSpec& device_of_types() { return *find_device("h200"); }

TEST(Candidates, WriteEachTypeOfDWithEachScalingInEachGrouping) {
    for (const Grouping grouping : {Grouping::None, Grouping::Rows, Grouping::K})
        for (const Operand& b : {kBlockScaled, kRowScaled})
            for (const DType d : {DType::BF16, DType::F16, DType::F32})
                for (const uint32_t m : {1, 4096})
                    for (const bool batch_invariant : {false, true}) {
                        if (grouping == Grouping::K && b == kBlockScaled) continue;  // whose scales are of rows
                        const Problem p{.m = m,
                                        .n = 1024,
                                        .k = 1024,
                                        .batch_invariant = batch_invariant && grouping != Grouping::Rows,
                                        .b = b,
                                        .d = {d},
                                        .groups = {grouping, grouping == Grouping::None ? 0u : 4u}};
                        EXPECT_NO_THROW(choose(p, device_of_types())) << text_of(p);
                    }
}

TEST(Candidates, MultiplyE5m2AsGradientsHaveIt) {
    constexpr Operand kGradient{.element = Element::E5M2};
    struct Case {
        Operand a, b;
        DType d;
        Grouping grouping;
        Finish finish = Finish::None;
    };
    for (const auto& [a, b, d, grouping, finish] :
         {Case{kGradient, kBlockScaled, DType::BF16, Grouping::None},
          {kGradient, kBlockScaled, DType::BF16, Grouping::Rows},
          {kGradient, kBlockScaled, DType::BF16, Grouping::None, Finish::Affine},
          {kGradient, kBlockScaled, DType::BF16, Grouping::Rows, Finish::Affine},
          {kGradient, kRowScaled, DType::BF16, Grouping::None},
          {kGradient, kRowScaled, DType::F32, Grouping::None},
          {kRowScaled, kGradient, DType::F32, Grouping::None},
          {kGradient, kRowScaled, DType::F32, Grouping::K},
          {kRowScaled, kGradient, DType::F32, Grouping::K}})
        for (const uint32_t m : {1, 4096})
            for (const bool batch_invariant : {false, true}) {
                const Problem p{.m = m,
                                .n = 1024,
                                .k = 1024,
                                .batch_invariant = batch_invariant && grouping != Grouping::Rows,
                                .a = a,
                                .b = b,
                                .d = {.element = d, .finish = finish},
                                .groups = {grouping, grouping == Grouping::None ? 0u : 4u}};
                const GemmConfig c = choose(p, device_of_types()).config;
                EXPECT_EQ(c.finish, finish) << text_of(p);
                EXPECT_EQ(c.a.element, a.element) << text_of(p);
                EXPECT_EQ(c.b.element, b.element) << text_of(p);
            }
}

TEST(Candidates, MultiplyIntegersWithBothKindsOfScalesOfB) {
    constexpr Operand kRows{.element = Element::I8}, kBlocks{.element = Element::I8, .scaling = Scaling::Blocks};
    for (const Operand& b : {kBlocks, kRows})
        for (const Grouping grouping : {Grouping::None, Grouping::Rows})
            for (const uint32_t m : {1, 4096})
                for (const bool batch_invariant : {false, true}) {
                    const Problem p{.m = m,
                                    .n = 1024,
                                    .k = 1024,
                                    .batch_invariant = batch_invariant && grouping != Grouping::Rows,
                                    .a = kRows,
                                    .b = b,
                                    .groups = {grouping, grouping == Grouping::None ? 0u : 4u}};
                    EXPECT_EQ(choose(p, device_of_types()).config.a.element, Element::I8) << text_of(p);
                }
    for (const GemmConfig& c : kernels()) {
        const bool has_wgmma = c.a.element != Element::I8 || c.tile_n % 16 == 0 || c.tile_n == 24;
        EXPECT_TRUE(has_wgmma) << name_of(c);
    }
}

TEST(Candidates, MultiplyWithMxScalesOfBAndOfAOrNot) {
    constexpr Operand kMx{.scaling = Scaling::Mx};
    for (const Operand& a : {kMx, kRowScaled})
        for (const Grouping grouping : {Grouping::None, Grouping::Rows})
            for (const uint32_t m : {1, 100, 4096})
                for (const bool batch_invariant : {false, true}) {
                    const Problem p{.m = m,
                                    .n = 1024,
                                    .k = 1024,
                                    .batch_invariant = batch_invariant && grouping != Grouping::Rows,
                                    .a = a,
                                    .b = kMx,
                                    .groups = {grouping, grouping == Grouping::None ? 0u : 4u}};
                    const GemmConfig c = choose(p, device_of_types()).config;
                    EXPECT_TRUE(c.mx() && c.a == a) << text_of(p);
                }
    EXPECT_TRUE(candidates({.a = kMx, .b = kRowScaled}).empty()) << "exponents of A alone";
}

TEST(Candidates, OfFewRowsOfMxProductsHaveTilesOfAsManyRows) {
    const auto choice = [](Problem p) {
        p.a = p.b = {.scaling = Scaling::Mx};
        return choose(p, *find_device("h200")).config;
    };
    for (const auto& [n, k] : {std::pair{4096u, 7168u}, {7168u, 2048u}, {576u, 7168u}, {32768u, 512u}}) {
        for (const uint32_t m : {1u, 16u}) EXPECT_EQ(choice({.m = m, .n = n, .k = k}).tile_m, 16u) << m << "x" << n;
        EXPECT_LE(choice({.m = 32, .n = n, .k = k}).tile_m, 32u) << n;
        EXPECT_GE(choice({.m = 512, .n = n, .k = k}).tile_m, 64u) << n;
        const GemmConfig of_groups = choice({.m = 64 * 1024, .n = n, .k = k, .groups = {Grouping::Rows, 64, 4}});
        EXPECT_EQ(of_groups.tile_m, 64u) << n << ": its kernel has a loop for each sixteen rows";
    }
}

TEST(Candidates, OfIntegersFollowWhatWasMeasuredOfFp8) {
    constexpr Operand kRows{.element = Element::I8}, kBlocks{.element = Element::I8, .scaling = Scaling::Blocks};
    const auto chosen = [&](uint32_t m, uint32_t n, uint32_t k) {
        return choose({.m = m, .n = n, .k = k, .a = kRows, .b = kBlocks}, device_of_types());
    };
    EXPECT_EQ(chosen(1, 2112, 7168).source, Source::ShippedTable);
    EXPECT_EQ(name_of(chosen(1, 2112, 7168).config), "m64n32s7w1_splitK3_x2_i8");
    EXPECT_EQ(chosen(16, 4096, 7168).source, Source::Model) << "which has no tile of 40 columns";
}

TEST(Candidates, MultiplyWithoutScalesInEveryLayoutAndFinishEachProduct) {
    for (const Element element : {Element::BF16, Element::F16})
        for (const DType d : {type_of(element).dtype, DType::F32})
            for (const Major a : {Major::K, Major::MN})
                for (const Major b : {Major::K, Major::MN})
                    for (const Grouping grouping : {Grouping::None, Grouping::Rows, Grouping::K})
                        for (const Finish finish : {Finish::None, Finish::Affine, Finish::HeadGaps}) {
                            if (grouping == Grouping::K && (a != b || finish != Finish::None)) continue;
                            if (finish == Finish::HeadGaps && (grouping != Grouping::None || d == DType::F32)) continue;
                            for (const uint32_t m : {1, 4096}) {
                                const Problem p{.m = m,
                                                .n = 1024,
                                                .k = 1024,
                                                .batch_invariant = m == 1 && grouping == Grouping::None,
                                                .a = unscaled(element, a),
                                                .b = unscaled(element, b),
                                                .d = {d, false, finish},
                                                .groups = {grouping, grouping == Grouping::None ? 0u : 4u}};
                                EXPECT_NO_THROW(choose(p, device_of_types())) << text_of(p);
                            }
                        }
}

TEST(Candidates, OfAllTypesFitTheSharedMemoryOfAnSm) {
    for (const GemmConfig& c : kernels()) {
        const uint32_t bytes = kernel_plan(c).smem.total;
        EXPECT_LE(bytes, device_of_types().smem_bytes) << name_of(c);
        EXPECT_LE(c.ctas_per_sm * (bytes + kReservedShared), device_of_types().smem_per_sm) << name_of(c);
    }
}

}  // namespace
}  // namespace finegemm::plan
