// The text of the kernels for an indexer's scores, run on the host: launches are the backend's, logits have the bits of
// the CPU backend's, and nothing else is written. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/mqa/mqa.cuh>
#include <finegemm/device/mqa/schedule.cuh>

#include "ops/mqa/cpu.h"
#include "ops/mqa/hopper.h"
#include "ops/mqa/source.h"
#include "support/mock_driver.h"
#include "support/mqa.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

template <MqaConfig C>
bool run_config(const MqaLaunch& launch, uint32_t seed) {
    if (launch.config != C) return false;
    host_kernel::launch(launch.grid, C.threads(), [&] { device::mqa_logits<C>(launch.params); }, seed);
    return true;
}

template <MqaKeys Keys, MqaForm Form, uint32_t Heads>
bool run_heads(const MqaLaunch& launch, uint32_t seed) {
    return run_config<MqaConfig{Heads, 32, Keys, Form}>(launch, seed) ||
           run_config<MqaConfig{Heads, 64, Keys, Form}>(launch, seed) ||
           run_config<MqaConfig{Heads, 128, Keys, Form}>(launch, seed);
}

template <MqaKeys Keys>
void run_kernel(const MqaLaunch& launch, uint32_t seed) {
    constexpr MqaForm kExact = MqaForm::Exact, kAbs = MqaForm::Abs;
    bool run = run_heads<Keys, kExact, 8>(launch, seed) || run_heads<Keys, kExact, 16>(launch, seed) ||
               run_heads<Keys, kExact, 32>(launch, seed) || run_heads<Keys, kExact, 64>(launch, seed);
    if constexpr (has_abs_form(Keys, 32))
        run = run || run_heads<Keys, kAbs, 32>(launch, seed) || run_heads<Keys, kAbs, 64>(launch, seed);
    ASSERT_TRUE(run) << "no such kernel";
}

class MqaKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{2};

    /// What both write to the logits of a problem that `make` makes twice.
    template <MqaKeys Keys, typename Make>
    void compare(const Make& make, uint32_t sms, uint32_t seed) {
        auto by_kernel = make(), by_cpu = make();
        run_on_cpu(by_cpu.call(), pool);
        const MqaLaunch launch = launch_of(by_kernel.call(), *driver, sms);
        const std::string name = text_of(by_kernel.call());
        try {
            run_kernel<Keys>(launch, seed);
        } catch (const std::exception& error) {
            FAIL() << seed << ": " << name << ": " << error.what();
        }
        ASSERT_TRUE(by_kernel.d.surroundings_intact()) << seed << ": " << name;
        const Matrix d = by_kernel.d.view();
        for (int64_t r = 0; r < d.rows; ++r)
            for (int64_t c = 0; c < d.cols; ++c)
                ASSERT_EQ(by_kernel.d.bits(r, c), by_cpu.d.bits(r, c))
                    << seed << ": " << name << ", query " << r << ", column " << c;
    }
};

TEST_F(MqaKernel, GivesTheBitsOfTheCpuForRandomWindows) {
    for (uint32_t seed = 1; seed <= test::random_cases(12); ++seed) {
        const auto make = [&] {
            test::Random random(seed);
            return test::MqaProblem(random);
        };
        if (make().queries.count == 0) continue;
        compare<MqaKeys::Rows>(make, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(MqaKernel, GivesTheBitsOfTheCpuForRandomPages) {
    for (uint32_t seed = 1; seed <= test::random_cases(12); ++seed) {
        const auto make = [&] {
            test::Random random(seed);
            return test::PagedMqaProblem(random);
        };
        compare<MqaKeys::Pages>(make, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
    }
}

/// More requests than the lanes of a warp add up by themselves; and as many tiles of a CTA as all stages are used for.
TEST_F(MqaKernel, SharesOutManyRequests) {
    const auto make = [](int64_t requests) {
        test::Random random(2);
        test::PagedMqaProblem problem(random, requests);
        while (problem.queries.dim == 32) problem = test::PagedMqaProblem(random, requests);
        return problem;
    };
    compare<MqaKeys::Pages>([&] { return make(300); }, 3, 1);
    for (const uint32_t ctas : {1u, 2u}) compare<MqaKeys::Pages>([&] { return make(120); }, ctas, ctas);
}

/// Warps share a row, of which some pieces lie in the window and others across its ends.
TEST_F(MqaKernel, FillsRowsOfManyPieces) {
    for (uint32_t seed = 1; seed <= 3; ++seed) {
        const auto make = [&] {
            test::Random random(seed);
            test::PagedMqaProblem problem(random);
            problem.queries.options.form = LogitsForm::Filled;
            problem.d = test::Logits(problem.queries.logits, problem.queries.count, random.any(8000, 30000), 5);
            return problem;
        };
        compare<MqaKeys::Pages>(make, 1 + seed, seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(MqaKernel, FillsAroundWindowsOfManyPieces) {
    for (const int32_t start : {0, 3000, 4096}) {
        const auto make = [&] {
            test::Random random(start + 1);
            test::MqaProblem problem(random);
            problem.queries.options.form = LogitsForm::Filled;
            problem.keys = 9000;
            problem.k = test::Buffer<uint8_t>(DType::E4M3, problem.keys, problem.queries.dim);
            problem.sfk = test::Buffer<float>(DType::F32, 1, problem.keys);
            for (int64_t i = 0; i < problem.queries.count; ++i)
                problem.starts.at(0, i) = start, problem.ends.at(0, i) = start + static_cast<int32_t>(i) * 300;
            problem.d = test::Logits(problem.queries.logits, problem.queries.count, problem.keys, 3);
            return problem;
        };
        compare<MqaKeys::Rows>(make, 2, 1);
        if (HasFatalFailure()) return;
    }
}

/// More items than a warp looks at at once, many of which have no tile: the next ones that have lie far behind.
TEST_F(MqaKernel, FindsTheQueriesOfFewAndShortWindows) {
    for (uint32_t seed = 1; seed <= test::random_cases(4); ++seed) {
        const auto make = [&] {
            test::Random random(seed);
            test::MqaProblem problem(random);
            const int64_t count = random.any(130, 400);
            do problem.queries = test::MqaQueries(random, count);
            while (!has_abs_form(MqaKeys::Rows, static_cast<uint32_t>(problem.queries.heads)));
            problem.queries.options.relu = Relu::Abs;
            problem.keys = 400;
            problem.k = test::Buffer<uint8_t>(DType::E4M3, problem.keys, problem.queries.dim);
            problem.sfk = test::Buffer<float>(DType::F32, 1, problem.keys);
            for (int64_t j = 0; j < problem.keys; ++j) {
                problem.sfk.at(0, j) = random.normal(1);
                for (int64_t c = 0; c < problem.queries.dim; ++c) problem.k.at(j, c) = test::MqaQueries::code(random);
            }
            problem.starts = test::Buffer<int32_t>(DType::I32, 1, count);
            problem.ends = test::Buffer<int32_t>(DType::I32, 1, count);
            const int64_t few = random.any(1, 60);
            for (int64_t i = 0; i < count; ++i) {
                const int64_t start = random.any(0, problem.keys), length = random.any(1, random.one_in(4) ? 300 : 40);
                problem.starts.at(0, i) = static_cast<int32_t>(start);
                problem.ends.at(0, i) = static_cast<int32_t>(random.one_in(few) ? start + length : start);
            }
            problem.d = test::Logits(problem.queries.logits, count, problem.keys, 3);
            return problem;
        };
        compare<MqaKeys::Rows>(make, 1 + seed % 3, seed);
        if (HasFatalFailure()) return;
    }
}

/// Bits that depend on the launch would not repeat.
TEST_F(MqaKernel, GivesTheSameBitsWithAnyNumberOfCtas) {
    const auto pages = [] {
        test::Random random(5);
        return test::PagedMqaProblem(random);
    };
    const auto rows = [] {
        test::Random random(3);
        return test::MqaProblem(random);
    };
    for (const uint32_t ctas : {1u, 4u, 40u}) {
        compare<MqaKeys::Pages>(pages, ctas, ctas);
        compare<MqaKeys::Rows>(rows, ctas, ctas);
    }
}

TEST_F(MqaKernel, WritesTheScheduleOfTheCpu) {
    test::Random random(7);
    for (int64_t i = 0; i < test::random_cases(12); ++i) {
        const int64_t requests = random.one_in(6) ? 2000 : random.any(0, 40), queries = random.any(1, 8);
        const int64_t slots = random.any(1, random.one_in(3) ? 200 : 9), cols = random.one_in(2) ? queries : 1;
        test::Buffer<int32_t> lengths(DType::I32, requests, cols, random.any(0, 2));
        const bool none = random.one_in(5);
        for (int64_t b = 0; b < requests; ++b)
            for (int64_t t = 0; t < cols; ++t)
                lengths.at(b, t) = none || random.one_in(4) ? 0 : static_cast<int32_t>(random.any(-2, 5000));
        test::Buffer<int32_t> by_kernel(DType::I32, slots + 1, 2, random.any(0, 1)), by_cpu(DType::I32, slots + 1, 2);
        const PagedMqaScheduleOptions options;
        const MqaScheduleLaunch launch = launch_of({lengths.view(), queries, by_kernel.view(), options});
        host_kernel::launch(launch.grid, launch.config.threads(), [&] { device::mqa_schedule(launch.params); });
        run_on_cpu(PagedMqaScheduleCall{lengths.view(), queries, by_cpu.view(), options}, pool);
        ASSERT_TRUE(by_kernel.surroundings_intact());
        for (int64_t s = 0; s <= slots; ++s)
            for (int64_t c = 0; c < 2; ++c)
                ASSERT_EQ(by_kernel.at(s, c), by_cpu.at(s, c)) << i << ": slot " << s << " of " << slots;
    }
}

}  // namespace
}  // namespace finegemm
