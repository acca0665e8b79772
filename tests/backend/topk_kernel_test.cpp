// The text of the kernels that select, run on the host. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/topk/select.cuh>

#include "ops/topk/cpu.h"
#include "support/slowdown.h"
#include "support/topk.h"

namespace finegemm {
namespace {

using test::TopkProblem;

template <uint32_t Ctas>
void run_topk(const TopkParams& params, uint32_t clusters, uint32_t seed) {
    host_kernel::launch(
        clusters * Ctas, TopkConfig::threads(), [&] { device::topk_select<TopkConfig{Ctas}>(params); }, seed, Ctas);
}

void expect_bits_of_cpu(TopkProblem& p, uint32_t ctas, uint32_t seed, ThreadPool& pool) {
    const auto wanted = p.run([&](const TopkCall& call) { run_on_cpu(call, pool); });
    const auto found = p.run([&](const TopkCall& call) {
        const TopkParams params = topk_params(call);
        const uint32_t clusters = seed % 2 == 0 ? params.rows : ceil_div(params.rows, 2);
        if (ctas == 1) run_topk<1>(params, clusters, seed);
        else if (ctas == 2) run_topk<2>(params, clusters, seed);
        else run_topk<4>(params, clusters, seed);
    });
    ASSERT_TRUE(found.intact) << p.name();
    ASSERT_TRUE(found == wanted) << p.name() << " of " << ctas << " CTAs";
}

TEST(TopkKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    test::Random random(64);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(12); ++i) {
        TopkProblem p(random, 2, 4000);
        expect_bits_of_cpu(p, i % 4 == 3 ? 2 : 1, i, pool);
    }
}

TEST(TopkKernel, ReadsAgainWhatItHasNoRoomFor) {
    test::Random random(65);
    ThreadPool pool(1);
    TopkProblem p(random, 1, 300);
    while (p.each > 1 || p.windows || p.k < 2) p = TopkProblem(random, 1, 300);
    p.cols = TopkConfig::held_columns() + 1234;
    p.logits = test::Buffer<float>(DType::F32, p.rows, p.cols, 2);
    for (int64_t j = 0; j < p.cols; ++j)
        for (int64_t i = 0; i < p.rows; ++i) p.logits.at(i, j) = std::round(random.normal(100)) / 8;
    expect_bits_of_cpu(p, 1, 1, pool);
}

TEST(TopkKernel, AClusterGivesTheSame) {
    test::Random random(66);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(3); ++i) {
        TopkProblem p(random, 2, 4000);
        p.options.sorted = i % 2 == 0;
        expect_bits_of_cpu(p, 4, i, pool);
    }
}

}  // namespace
}  // namespace finegemm
