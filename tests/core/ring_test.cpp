// The ring: its cursor, and the barriers under random interleavings.
#include <gtest/gtest.h>

#include "support/configs.h"
#include "support/ring_model.h"

namespace finegemm {
namespace {

using test::Outcome;
using test::RingModel;

template <typename T>
class RingCursorOf : public testing::Test {};
using Stages = testing::Types<RingCursor<1>, RingCursor<2>, RingCursor<3>, RingCursor<4>, RingCursor<7>, RingCursor<8>>;
TYPED_TEST_SUITE(RingCursorOf, Stages);

constexpr uint32_t stages_of(auto cursor) {
    uint32_t stages = 0;
    do {
        ++cursor;
        ++stages;
    } while (cursor.stage != 0);
    return stages;
}

TYPED_TEST(RingCursorOf, ReturnsAfterTwoRoundsAndNotBefore) {
    constexpr uint32_t kStages = stages_of(TypeParam());
    TypeParam at = TypeParam::consumer();
    for (uint32_t step = 1; step <= 2 * kStages; ++step) {
        ++at;
        EXPECT_EQ(at.stage, step % kStages);
        EXPECT_EQ(at.stage == 0 && at.parity == 0, step == 2 * kStages);
    }
}

TYPED_TEST(RingCursorOf, TakesManyStepsAtOnce) {
    constexpr uint32_t kStages = stages_of(TypeParam());
    for (uint32_t steps = 0; steps <= kStages; ++steps) {
        TypeParam many = TypeParam::producer(), single = TypeParam::producer();
        for (uint32_t round = 0; round < 5; ++round) {
            many += steps;
            for (uint32_t i = 0; i < steps; ++i) ++single;
            EXPECT_EQ(many.stage, single.stage);
            EXPECT_EQ(many.parity, single.parity);
        }
    }
}

TEST(RingCursor, AFreshRingIsEmpty) {
    constexpr test::Mbarrier kFresh;
    static_assert(kFresh.passed(RingCursor<4>::producer().parity), "the producer need not wait");
    static_assert(!kFresh.passed(RingCursor<4>::consumer().parity), "the consumer must");
}

TEST(Mbarrier, APhaseEndsWhenAllHaveArrivedAndAllBytesAreThere) {
    test::Mbarrier barrier;
    barrier.init(2);
    barrier.receive(3);  // by a neighbour, before they are expected here
    EXPECT_FALSE(barrier.passed(0));
    barrier.arrive(5);
    barrier.arrive();
    EXPECT_FALSE(barrier.passed(0));
    barrier.receive(2);
    EXPECT_TRUE(barrier.passed(0));
    EXPECT_FALSE(barrier.passed(1));
}

constexpr struct {
    uint32_t tiles, blocks;
} kWalks[] = {{1, 1}, {1, 2}, {5, 1}, {3, 7}, {2, 20}};

TEST(Ring, FinishesInEveryOrderOfSteps) {
    test::for_each_config([]<GemmConfig C>() {
        for (const auto [tiles, blocks] : kWalks)
            for (uint32_t seed = 0; seed < 60; ++seed)
                ASSERT_EQ((RingModel<C>(tiles, blocks, seed).run()), Outcome::Finished)
                    << tiles << " tiles of " << blocks << ", seed " << seed;
    });
}

/// How often each outcome comes with other rules than the kernel's.
template <GemmConfig C>
std::array<int, 4> outcomes(int full, int empty, uint32_t vector = kernel_plan(C).scale_vector_blocks) {
    std::array<int, 4> seen{};
    for (uint32_t seed = 0; seed < 60; ++seed) {
        const typename RingModel<C>::Rules rules{kernel_plan(C).arrivals.full + static_cast<uint32_t>(full),
                                                 kernel_plan(C).arrivals.empty + static_cast<uint32_t>(empty), vector};
        ++seen[static_cast<size_t>(RingModel<C>(3, 23, seed, rules).run())];
    }
    return seen;
}
int count(const std::array<int, 4>& seen, Outcome outcome) { return seen[static_cast<size_t>(outcome)]; }

TEST(Ring, OneArrivalTooManyAlwaysDeadlocks) {
    test::for_each_config([]<GemmConfig C>() {
        EXPECT_EQ(count(outcomes<C>(1, 0), Outcome::Deadlock), 60);
        EXPECT_EQ(count(outcomes<C>(0, 1), Outcome::Deadlock), 60);
    });
}

TEST(Ring, OneArrivalTooFewOnEmptyStagesOverwritesWhatIsRead) {
    test::for_each_config([]<GemmConfig C>() { EXPECT_GT(count(outcomes<C>(0, -1), Outcome::Overwritten), 0); });
}

TEST(Ring, OneArrivalTooFewOnFullStagesReadsTooEarly) {
    test::for_each_config([]<GemmConfig C>() { EXPECT_GT(count(outcomes<C>(-1, 0), Outcome::ReadBeforeWrite), 0); });
}

TEST(Ring, SlicesThatMeetInAStageTakeARoundForAnother) {
    constexpr GemmConfig kOdd{.tile_m = 64, .tile_n = 64, .stages = 5, .math_warpgroups = 2};
    static_assert(kOdd.k_slices() == 2);
    EXPECT_LT(count(outcomes<kOdd>(0, 0), Outcome::Finished), 60);
}

TEST(Ring, AProducerThatServesSeveralSlicesTakesARoundForAnother) {
    constexpr GemmConfig kShort{.tile_m = 64, .tile_n = 64, .stages = 4, .math_warpgroups = 2};
    static_assert(kShort.k_slices() == 2 && kernel_plan(kShort).producers == Producers::RoundRobin);
    const auto finished = [](uint32_t producers) {
        int count = 0;
        for (uint32_t seed = 0; seed < 200; ++seed) {
            const typename RingModel<kShort>::Rules rules{.producers = producers};
            count += RingModel<kShort>(3, 23, seed, rules).run() == Outcome::Finished;
        }
        return count;
    };
    EXPECT_EQ(finished(kProducerWarps), 200);
    EXPECT_LT(finished(3), 200);
}

TEST(Ring, AScaleWarpThatSkipsAWholeRoundTakesItForAnother) {
    test::for_each_config([]<GemmConfig C>() {
        if constexpr (C.scales == ScaleLayout::Rows && kernel_plan(C).vector_scale_warps > 1) {
            const auto seen = outcomes<C>(0, 0, C.stages + 1);
            EXPECT_LT(count(seen, Outcome::Finished), 60);
        }
    });
}

TEST(Arrivals, AStageIsEmptyWhenEveryWarpThatAMulticastLoadReachesHasSaidSo) {
    static_assert(kernel_plan({.math_warpgroups = 2}).arrivals.empty == 8);
    static_assert(kernel_plan({.math_warpgroups = 3, .cluster = 2, .cluster_use = ClusterUse::ShareA}).arrivals.empty ==
                  24);
    static_assert(kernel_plan({.math_warpgroups = 1, .cluster = 4, .cluster_use = ClusterUse::ShareB}).arrivals.empty ==
                  16);
    static_assert(
        kernel_plan({.math_warpgroups = 1, .cluster = 4, .cluster_use = ClusterUse::SplitK}).arrivals.empty == 4,
        "nothing is shared");
    static_assert(kernel_plan({.tile_m = 64, .math_warpgroups = 2}).arrivals.empty == 4, "a stage is one k-slice's");
}

}  // namespace
}  // namespace finegemm
