// The text of the kernels for layouts of scales, run on the host: each thread of a CTA is a thread. Layer tests.
#include <gtest/gtest.h>

#include <random>

#include <finegemm/device/scale_layout.cuh>

#include "ops/scale_layout/cpu.h"
#include "ops/scale_layout/hopper.h"
#include "support/scale_layout.h"

namespace finegemm {
namespace {

template <ScaleLayoutConfig C>
void run_config(const ScaleLayoutLaunch& launch) {
    if (launch.config == C)
        host_kernel::launch(launch.grid, C.threads(), [&] { device::scale_layout<C>(launch.params); });
}

void run_kernel(const ScaleLayoutLaunch& launch) {
    using enum ScaleTransform;
    run_config<ScaleLayoutConfig{Copy, false}>(launch);
    run_config<ScaleLayoutConfig{Copy, true}>(launch);
    run_config<ScaleLayoutConfig{Round, false}>(launch);
    run_config<ScaleLayoutConfig{Round, true}>(launch);
    run_config<ScaleLayoutConfig{Pack, false}>(launch);
    run_config<ScaleLayoutConfig{Pack, true}>(launch);
    run_config<ScaleLayoutConfig{Unpack, false}>(launch);
    run_config<ScaleLayoutConfig{Unpack, true}>(launch);
}

TEST(ScaleLayoutKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    std::mt19937 random(11);
    ThreadPool pool(2);
    for (int i = 0; i < 40; ++i) {
        test::ScaleLayoutProblem problem(random);
        problem.run([&](const ScaleLayoutCall& call) { run_kernel(launch_of(call)); });
        ASSERT_TRUE(problem.surroundings_intact()) << i << ": " << problem.name();
        const std::vector<uint32_t> by_kernel = problem.out;
        problem.run([&](const ScaleLayoutCall& call) { run_on_cpu(call, pool); });
        ASSERT_EQ(by_kernel, problem.out) << i << ": " << problem.name();
    }
}

TEST(ScaleLayoutKernel, WalksOverMoreTilesThanItHasCtas) {
    std::mt19937 random(12);
    test::ScaleLayoutProblem problem(random, {.rows = 300, .cols = 200, .transform = ScaleTransform::Copy});
    ThreadPool pool(1);
    problem.run([&](const ScaleLayoutCall& call) {
        ScaleLayoutLaunch launch = launch_of(call);
        EXPECT_GT(launch.params.tiles, 3u);
        launch.grid = 2;
        run_kernel(launch);
    });
    const std::vector<uint32_t> by_kernel = problem.out;
    problem.run([&](const ScaleLayoutCall& call) { run_on_cpu(call, pool); });
    EXPECT_EQ(by_kernel, problem.out);
}

/// Numbers that no caller should pass lead to nothing outside of the matrices: the sanitizers watch the loads.
TEST(ScaleLayoutKernel, NumbersThatBreakTheRulesStayWithinTheMatrices) {
    std::mt19937 random(13);
    for (int i = 0; i < 12; ++i) {
        test::ScaleLayoutProblem problem(random, {.groups = i % 2 == 0 ? ScaleGroupForm::Rows : ScaleGroupForm::KSizes,
                                                  .transform = ScaleTransform::Pack});
        for (int32_t& number : problem.numbers) number = static_cast<int32_t>(random());
        problem.run([&](const ScaleLayoutCall& call) { run_kernel(launch_of(call)); });
        EXPECT_TRUE(problem.surroundings_intact()) << problem.name();
    }
}

}  // namespace
}  // namespace finegemm
