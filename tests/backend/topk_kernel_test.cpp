// The text of the kernels that select, run on the host. Layer tests.
#include <functional>

#include <gtest/gtest.h>

#include <finegemm/device/topk/few.cuh>
#include <finegemm/device/topk/select.cuh>

#include "ops/topk/cpu.h"
#include "support/slowdown.h"
#include "support/topk.h"

namespace finegemm {
namespace {

using test::TopkProblem;

template <TopkConfig C>
void run_topk(const TopkParams& params, uint32_t clusters, uint32_t seed) {
    const auto cta = [&] {
        if constexpr (C.few) device::topk_select_few<C>(params);
        else device::topk_select<C>(params);
    };
    host_kernel::launch(clusters * C.ctas, TopkConfig::threads(), cta, seed, C.ctas);
}

/// All kernels, by the index of their configuration.
constexpr void (*kKernels[TopkConfig::kCount])(const TopkParams&, uint32_t clusters, uint32_t seed) = {
    run_topk<TopkConfig{1}>,       run_topk<TopkConfig{2}>,       run_topk<TopkConfig{4}>,      run_topk<TopkConfig{8}>,
    run_topk<TopkConfig{2, true}>, run_topk<TopkConfig{4, true}>, run_topk<TopkConfig{8, true}>};

void expect_bits_of_cpu(TopkProblem& p, TopkConfig c, uint32_t seed, ThreadPool& pool) {
    const auto wanted = p.run([&](const TopkCall& call) { run_on_cpu(call, pool); });
    const auto found = p.run([&](const TopkCall& call) {
        TopkParams params = topk_params(call);
        params.early_windows = seed % 3 == 0;
        kKernels[c.index()](params, seed % 2 == 0 ? params.rows : ceil_div(params.rows, 2), seed);
    });
    ASSERT_TRUE(found.intact) << p.name();
    ASSERT_TRUE(found == wanted) << p.name() << " of " << c.ctas << " CTAs";
}

TEST(TopkKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    test::Random random(64);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(12); ++i) {
        TopkProblem p(random, 2, 4000);
        expect_bits_of_cpu(p, {i % 4 == 3 ? 2u : 1u}, i, pool);
    }
}

TEST(TopkKernel, AClusterThatKeepsARowGivesTheBitsOfTheCpu) {
    test::Random random(70);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(12); ++i) {
        TopkProblem p(random, 2, 6000);
        expect_bits_of_cpu(p, {2u << i % 3, true}, i, pool);
    }
    for (const double step : {0.0, 1.0}) {  // rows of which a warp has many sets, with equal numbers and with few
        TopkProblem p(random, 1, 300);
        p.cols = 30000;
        p.logits = test::Buffer<float>(DType::F32, p.rows, p.cols, 2);
        for (int64_t i = 0; i < p.rows; ++i)
            for (int64_t j = 0; j < p.cols; ++j) {
                const double x = random.normal(1);
                p.logits.at(i, j) = static_cast<float>(step > 0 ? std::round(x / step) * step : x);
            }
        expect_bits_of_cpu(p, {2, true}, 0, pool);
    }
}

/// A row that no cluster of `ctas` has room for. `number`: of a column.
template <typename Number>
TopkProblem long_row(test::Random& random, uint32_t ctas, int64_t k, const Number& number) {
    TopkProblem p(random, 1, 300);
    while (p.each > 1 || p.windows) p = TopkProblem(random, 1, 300);
    p.k = k;
    p.cols = TopkConfig{ctas}.held_columns() + 1234;
    p.logits = test::Buffer<float>(DType::F32, p.rows, p.cols, 2);
    for (int64_t i = 0; i < p.rows; ++i)
        for (int64_t j = 0; j < p.cols; ++j) p.logits.at(i, j) = number(j);
    return p;
}

TEST(TopkKernel, ListsWhatASampleLeavesOfARowThatItHasNoRoomFor) {
    test::Random random(65);
    ThreadPool pool(1);
    for (const uint32_t ctas : {1, 2})
        for (const int64_t k : {1, 2048}) {
            TopkProblem p = long_row(random, ctas, k, [&](int64_t) { return random.normal(1); });
            expect_bits_of_cpu(p, {ctas}, static_cast<uint32_t>(k), pool);
        }
}

/// Is a column in the sample of a row that one CTA has?
bool is_looked_at(int64_t column) {
    const auto at = static_cast<uint32_t>(column), which = at / TopkSample::kLeastStride;
    const TopkSample sample{TopkSample::kLeastStride, 0};
    return at / TopkSample::kNear * TopkSample::kNear == sample.column(which * TopkSample::kNear);
}

TEST(TopkKernel, ListsWhatItsFirstDigitsBound) {
    test::Random random(71);
    ThreadPool pool(1);
    // All numbers of the sample that have the highest first digit are wanted, so that no digit follows.
    constexpr int64_t kSelected = 40;
    const uint32_t wanted = TopkSample{TopkSample::kLeastStride, 0}.wanted(kSelected);
    for (uint32_t seed = 0; seed < 6; ++seed) {
        uint32_t large = 0;
        TopkProblem p = long_row(random, 1, kSelected, [&](int64_t j) {
            const bool is_large = is_looked_at(j) ? large < wanted : j % 7 == 0;
            if (is_looked_at(j)) large += is_large ? 1 : 0;
            return (is_large ? 4.0f : 1.0f) + static_cast<float>(random.any(0, 1000)) * 1e-4f;
        });
        expect_bits_of_cpu(p, {1}, seed, pool);
    }
}

TEST(TopkKernel, TakesAnotherBoundWhereASampleHasMisled) {
    test::Random random(69);
    ThreadPool pool(1);
    for (const int64_t k : {40, 300}) {  // for 300 more than half of the sample would be wanted
        TopkProblem p = long_row(random, 1, k, [&](int64_t j) { return random.normal(1) + (is_looked_at(j) ? 9 : 0); });
        expect_bits_of_cpu(p, {1}, 0, pool);
    }
}

TEST(TopkKernel, ReadsARowAgainOfWhichNoSampleHelps) {
    test::Random random(68);
    ThreadPool pool(1);
    const std::vector<std::function<float(int64_t)>> rows = {
        [](int64_t) { return 1.0f; },                                               // more equal ones than a list takes
        [](int64_t) { return -INFINITY; },                                          // as what is no number
        [](int64_t) { return NAN; },                                                // which no number is compared with
        [&](int64_t) { return std::round(random.normal(1)); },                      // many equal ones
        [&](int64_t j) { return random.normal(1) - (is_looked_at(j) ? 99 : 0); }};  // as if all others were large
    for (uint32_t i = 0; i < rows.size(); ++i) {
        TopkProblem p = long_row(random, 1 + i % 2, 300, rows[i]);
        expect_bits_of_cpu(p, {1 + i % 2}, i, pool);
    }
}

TEST(TopkKernel, MarksColumnsOfLongPartsInTurn) {
    test::Random random(67);
    ThreadPool pool(1);
    TopkProblem p = long_row(random, 1, 500, [&](int64_t) { return random.normal(1); });
    p.cols = kTopkMarked + 5000;
    p.logits = test::Buffer<float>(DType::F32, p.rows, p.cols, 0);
    for (int64_t j = 0; j < p.cols; ++j)
        for (int64_t i = 0; i < p.rows; ++i) p.logits.at(i, j) = random.normal(1);
    for (const bool sorted : {false, true}) {
        p.options.sorted = sorted;
        expect_bits_of_cpu(p, {1}, 0, pool);
    }
}

TEST(TopkKernel, AClusterGivesTheSame) {
    test::Random random(66);
    ThreadPool pool(1);
    for (uint32_t i = 0; i < test::tried(3); ++i) {
        TopkProblem p(random, 2, 4000);
        p.options.sorted = i % 2 == 0;
        expect_bits_of_cpu(p, {4}, i, pool);
    }
}

}  // namespace
}  // namespace finegemm
