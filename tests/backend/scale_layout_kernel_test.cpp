// The text of the kernels for layouts of scales, run on the host: each thread of a CTA is a thread. Layer tests.
#include <gtest/gtest.h>

#include <random>

#include <finegemm/device/scale_layout.cuh>

#include "ops/scale_layout/cpu.h"
#include "ops/scale_layout/hopper.h"
#include "support/scale_layout.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

template <ScaleLayoutConfig C>
void run_config(const ScaleLayoutLaunch& launch) {
    if (launch.config == C)
        host_kernel::launch(launch.grid, C.threads(), [&] { device::scale_layout<C>(launch.params); });
}

void run_kernel(const ScaleLayoutLaunch& launch) {
    using enum ScaleTransform;
    constexpr auto kNone = ScaleGroupKind::None, kRows = ScaleGroupKind::Rows, kK = ScaleGroupKind::K;
    run_config<ScaleLayoutConfig{Copy, kNone}>(launch);
    run_config<ScaleLayoutConfig{Copy, kRows}>(launch);
    run_config<ScaleLayoutConfig{Round, kNone}>(launch);
    run_config<ScaleLayoutConfig{Round, kRows}>(launch);
    run_config<ScaleLayoutConfig{Pack, kNone}>(launch);
    run_config<ScaleLayoutConfig{Pack, kRows}>(launch);
    run_config<ScaleLayoutConfig{Pack, kK}>(launch);
    run_config<ScaleLayoutConfig{Pack, kNone, ScaleDirect::Columns}>(launch);
    run_config<ScaleLayoutConfig{Pack, kNone, ScaleDirect::Rows}>(launch);
    run_config<ScaleLayoutConfig{Unpack, kNone}>(launch);
    run_config<ScaleLayoutConfig{Unpack, kRows}>(launch);
}

TEST(ScaleLayoutKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    std::mt19937 random(11);
    ThreadPool pool(2);
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        test::ScaleLayoutProblem problem(random);
        problem.run([&](const ScaleLayoutCall& call) { run_kernel(launch_of(call)); });
        ASSERT_TRUE(problem.surroundings_intact()) << i << ": " << problem.name();
        const std::vector<uint32_t> by_kernel = problem.out;
        problem.run([&](const ScaleLayoutCall& call) { run_on_cpu(call, pool); });
        ASSERT_EQ(by_kernel, problem.out) << i << ": " << problem.name();
    }
}

TEST(ScaleLayoutKernel, PacksOneColumnIntoTheLowestBytes) {
    std::mt19937 random(15);
    ThreadPool pool(1);
    for (int i = 0; i < 12; ++i) {
        const ScaleGroupForm form = i % 2 == 0 ? ScaleGroupForm::None : ScaleGroupForm::Rows;
        test::ScaleLayoutProblem problem(random, {.cols = 1, .groups = form, .transform = ScaleTransform::Pack});
        problem.run([&](const ScaleLayoutCall& call) { run_kernel(launch_of(call)); });
        const std::vector<uint32_t> by_kernel = problem.out;
        problem.run([&](const ScaleLayoutCall& call) { run_on_cpu(call, pool); });
        ASSERT_EQ(by_kernel, problem.out) << problem.name();
    }
}

TEST(ScaleLayoutKernel, FourRowsThatAreLoadedAtOnceNeedNotBelongToGroupsTogether) {
    std::mt19937 random(14);
    ThreadPool pool(1);
    for (const ScaleTransform transform :
         {ScaleTransform::Copy, ScaleTransform::Round, ScaleTransform::Pack, ScaleTransform::Unpack})
        for (int seen = 0; seen < 2;) {
            test::ScaleLayoutProblem problem(random,
                                             {.rows = 64, .groups = ScaleGroupForm::Rows, .transform = transform});
            bool by_four = false;
            problem.run([&](const ScaleLayoutCall& call) {
                const ScaleLayoutLaunch launch = launch_of(call);
                by_four = launch.params.load.access == ScaleAccess::FourRows;
                if (by_four) run_kernel(launch);
            });
            if (!by_four) continue;
            ++seen;
            const std::vector<uint32_t> by_kernel = problem.out;
            problem.run([&](const ScaleLayoutCall& call) { run_on_cpu(call, pool); });
            ASSERT_EQ(by_kernel, problem.out) << problem.name();
        }
}

/// Tries random problems until a launch is of the kind that is looked for, and compares its bits with the CPU's.
template <typename IsWanted>
void expect_bits_of_the_cpu(std::mt19937& random, const test::ScaleLayoutWish& wish, const IsWanted& is_wanted) {
    ThreadPool pool(1);
    for (bool ran = false; !ran;) {
        test::ScaleLayoutProblem problem(random, wish);
        problem.run([&](const ScaleLayoutCall& call) {
            const ScaleLayoutLaunch launch = launch_of(call);
            ran = is_wanted(launch);
            if (ran) run_kernel(launch);
        });
        if (!ran) continue;
        ASSERT_TRUE(problem.surroundings_intact()) << problem.name();
        const std::vector<uint32_t> by_kernel = problem.out;
        problem.run([&](const ScaleLayoutCall& call) { run_on_cpu(call, pool); });
        ASSERT_EQ(by_kernel, problem.out) << problem.name();
    }
}

TEST(ScaleLayoutKernel, RowsThatStaySideBySideAreStoredByWhoLoadedThem) {
    std::mt19937 random(16);
    const auto by_columns = [](const ScaleLayoutLaunch& l) { return l.params.columns != 0; };
    for (const ScaleTransform transform : {ScaleTransform::Copy, ScaleTransform::Round, ScaleTransform::Pack})
        for (const int64_t cols : {2, 18, 57})
            expect_bits_of_the_cpu(random,
                                   {.rows = 516, .cols = cols, .groups = ScaleGroupForm::None, .transform = transform},
                                   by_columns);
}

TEST(ScaleLayoutKernel, WordsOfContiguousColumnsAreStoredByWhoLoadedThem) {
    std::mt19937 random(17);
    const auto by_rows = [](const ScaleLayoutLaunch& l) { return l.config.direct == ScaleDirect::Rows; };
    for (const int64_t rows : {3, 6, 67, 516})  // the last ones of which are stored one by one
        for (const int64_t cols : {4, 12, 64})
            expect_bits_of_the_cpu(
                random, {.rows = rows, .cols = cols, .groups = ScaleGroupForm::None, .transform = ScaleTransform::Pack},
                by_rows);
}

TEST(ScaleLayoutKernel, RowsThatLieOneBehindTheOtherArePackedFromSharedMemory) {
    std::mt19937 random(18);
    const auto whole = [](const ScaleLayoutLaunch& l) { return l.params.whole_rows != 0; };
    for (const ScaleGroupForm form : {ScaleGroupForm::None, ScaleGroupForm::Rows})
        for (const int64_t rows : {67, 132})
            for (const int64_t cols : {31, 57, 121})
                expect_bits_of_the_cpu(
                    random, {.rows = rows, .cols = cols, .groups = form, .transform = ScaleTransform::Pack}, whole);
}

TEST(ScaleLayoutKernel, WalksOverMoreTilesThanItHasCtas) {
    std::mt19937 random(12);
    test::ScaleLayoutProblem problem(random, {.rows = 300, .cols = 200, .transform = ScaleTransform::Copy});
    ThreadPool pool(1);
    problem.run([&](const ScaleLayoutCall& call) {
        ScaleLayoutLaunch launch = launch_of(call);
        ASSERT_GT(launch.grid, 3u);
        launch.params.share = launch.grid / 2, launch.params.rest = launch.grid % 2;
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
