// The text of the kernels for the product before a norm, run on the host: within the bound, all slices are written and
// nothing else is. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/prenorm/prenorm.cuh>

#include "ops/prenorm/hopper.h"
#include "ops/prenorm/source.h"
#include "support/mock_driver.h"
#include "support/prenorm.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

using test::PrenormCase;
using test::PrenormWish;
using test::Random;

template <PrenormConfig C>
bool run_config(const PrenormLaunch& launch, uint32_t seed) {
    if (launch.config.config != C) return false;
    host_kernel::launch(
        launch.grid, C.threads(), [&] { device::prenorm<C>(launch.params); }, seed, launch.config.cluster(),
        seed % 2 == 0);
    return true;
}

bool run_kernel(const PrenormLaunch& launch, uint32_t seed) {
    return run_config<PrenormConfig{64, 24}>(launch, seed) || run_config<PrenormConfig{64, 32}>(launch, seed) ||
           run_config<PrenormConfig{128, 24}>(launch, seed) || run_config<PrenormConfig{128, 32}>(launch, seed);
}

class PrenormKernelText : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);

    /// What is wrong with what a plan gives.
    std::string faults(PrenormCase& p, const PrenormPlan& plan, uint32_t seed) {
        try {
            if (!run_kernel(launch_of(p.call(), *driver, plan), seed)) return "no such kernel";
        } catch (const std::exception& error) {
            return p.text() + ": " + error.what();
        }
        return p.faults();
    }
};

/// Rings go round, and clusters have several items: what waits too little is late now and then.
TEST_F(PrenormKernelText, LongPartsAndManyItemsAreWithinTheBound) {
    struct Long {
        PrenormWish call;
        PrenormPlan plan;
    };
    const Long all[] = {
        {{70, 24, 64 * 50, 1}, {.kernel = {{64, 24}, 0}}},
        {{640, 8, 64 * 3, 1}, {.kernel = {{64, 24}, 1}}},
        {{640, 24, 64 * 15, 1}, {.kernel = {{64, 24}, 3}}},
        {{200, 32, 64 * 35, 2}, {.kernel = {{64, 32}, 0}, .slices = 2, .clusters = 2}},
        {{300, 24, 64 * 31, 3}, {.kernel = {{128, 24}, 1}, .slices = 2}},
        {{520, 24, 64 * 13, 1}, {.kernel = {{128, 24}, 0}}},
        {{520, 32, 64 * 26, 5}, {.kernel = {{128, 32}, 2}, .slices = 2}},
    };
    for (uint32_t i = 0; i < std::size(all); ++i) {
        Random random(i);
        PrenormCase p(random, all[i].call);
        ASSERT_EQ(faults(p, all[i].plan, i + 1), "") << i;
    }
}

/// Any plan that there is for the call, of few SMs, so that CTAs have several items, or of all.
TEST_F(PrenormKernelText, RandomCallsByAnyPlanAreWithinTheBound) {
    for (uint32_t seed = 1; seed <= test::random_cases(20); ++seed) {
        Random random(seed);
        PrenormCase p(random);
        if (p.rows == 0) continue;
        plan::DeviceSpec device{.name = "few"};
        device.sms = random.one_of({1u, 3u, 16u, 132u});
        const std::vector<PrenormPlan> plans = prenorm_plans({p.rows, p.cols, p.k, p.slices}, device);
        const PrenormPlan& plan = plans[static_cast<size_t>(random.any(0, static_cast<int64_t>(plans.size()) - 1))];
        ASSERT_EQ(faults(p, plan, seed), "")
            << seed << ": " << plan.kernel.config.rows << " rows, cluster of " << plan.kernel.cluster() << ", "
            << plan.slices << " slices, " << plan.clusters << " clusters";
    }
}

}  // namespace
}  // namespace finegemm
