// The text of the kernels of routing, run on the host. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/routing/combine.cuh>
#include <finegemm/device/routing/permute.cuh>
#include <finegemm/device/routing/route.cuh>

#include "ops/routing/cpu.h"
#include "ops/routing/hopper.h"
#include "support/routing.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::RouteProblem;
using test::RowsProblem;

template <uint32_t Ctas>
void run_route(const RouteParams& params, uint32_t seed) {
    host_kernel::launch(Ctas, RouteConfig::threads(), [&] { device::route<RouteConfig{Ctas}>(params); }, seed, Ctas);
}

template <bool Quantizes>
void run_permute(const PermuteLaunch& launch, uint32_t seed) {
    host_kernel::launch(
        launch.grid, PermuteConfig::threads(), [&] { device::permute_rows<PermuteConfig{Quantizes}>(launch.params); },
        seed);
}
void run_permute(const PermuteLaunch& launch, uint32_t seed) {
    launch.config.quantizes ? run_permute<true>(launch, seed) : run_permute<false>(launch, seed);
}

TEST(RouteKernel, GivesTheNumbersOfTheCpuAndWritesNothingElse) {
    test::Random random(51);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(30); ++i) {
        const RouteProblem p(random);
        const auto wanted = p.run([&](const RouteCall& call) { run_on_cpu(call, pool); });
        const auto found = p.run([&](const RouteCall& call) { run_route<1>(launch_of(call).params, i); });
        ASSERT_TRUE(found == wanted) << p.name();
    }
}

TEST(RouteKernel, AClusterGivesTheSame) {
    test::Random random(52);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(5); ++i) {
        const RouteProblem p(random, i == 0 ? 3000 : 300);
        const auto wanted = p.run([&](const RouteCall& call) { run_on_cpu(call, pool); });
        const auto found = p.run([&](const RouteCall& call) { run_route<8>(launch_of(call).params, i); });
        ASSERT_TRUE(found == wanted) << p.name();
    }
}

TEST(PermuteKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    test::Random random(53);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        const RowsProblem p(random, i % 6 == 0);
        const bool quantizes = i % 2 == 0;
        const DType copied = random.one_of({DType::E4M3, DType::BF16, DType::E5M2, DType::F16});
        const int32_t num_sms = i % 5 == 0 ? 1 : 0;
        const auto found =
            p.permute(quantizes, copied, num_sms, [&](const PermuteCall& call) { run_permute(launch_of(call), i); });
        const auto wanted = p.permute(quantizes, copied, 0, [&](const PermuteCall& call) { run_on_cpu(call, pool); });
        ASSERT_TRUE(found == wanted) << p.name();
    }
}

TEST(CombineKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    test::Random random(54);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        const RowsProblem p(random, i % 6 == 0);
        const auto found = p.combine(i, i % 5 == 0 ? 1 : 0, [&](const CombineCall& call) {
            const CombineLaunch launch = launch_of(call);
            host_kernel::launch(
                launch.grid, CombineConfig::threads(), [&] { device::combine<CombineConfig{}>(launch.params); }, i);
        });
        const auto wanted = p.combine(i, 0, [&](const CombineCall& call) { run_on_cpu(call, pool); });
        ASSERT_TRUE(found == wanted) << p.name();
    }
}

TEST(CombineKernel, AddsTheBiasesOfExpertsAsTheCpuAndReadsNoOthers) {
    test::Random random(55);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        const RowsProblem p(random, i % 6 == 0);
        RowsProblem::Biases biases(random, p);
        const auto combined = [&](int32_t num_sms, const auto& body) { return p.combine(i, num_sms, body, &biases); };
        const auto found = combined(i % 5 == 0 ? 1 : 0, [&](const CombineCall& call) {
            const CombineLaunch launch = launch_of(call);
            ASSERT_EQ(launch.config.index(), (CombineConfig{false, true}).index());
            host_kernel::launch(
                launch.grid, CombineConfig::threads(),
                [&] { device::combine<CombineConfig{false, true}>(launch.params); }, i);
        });
        const auto wanted = combined(0, [&](const CombineCall& call) { run_on_cpu(call, pool); });
        ASSERT_TRUE(found == wanted) << p.name();
    }
}

}  // namespace
}  // namespace finegemm
