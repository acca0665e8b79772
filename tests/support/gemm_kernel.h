// Runs the text of a GEMM kernel on the host, as the backend would launch it. Layer tests.
#pragma once

#include <gtest/gtest.h>

#include <finegemm/device/gemm.cuh>

#include "ops/gemm/cpu.h"
#include "ops/gemm/hopper.h"
#include "plan/plan.h"
#include "support/matrix.h"
#include "support/mock_driver.h"

namespace finegemm::test {

/// `ctas`: at once. Fails the test, and returns, where the planner rejects the kernel or the machine stops it.
template <GemmConfig C>
void run_kernel(const cuda::Driver& driver, const Call& call, uint32_t ctas, uint32_t seed) {
    const plan::Problem problem = problem_of(call);
    ASSERT_EQ(plan::rejected(problem, *plan::find_device("h200"), C), "") << plan::name_of(C);
    const LaunchParams params = params_of(driver, call, problem, C, ctas);
    try {
        host_kernel::launch(
            grid_size(C, most_tiles(problem, C, ctas), ctas), C.threads(),
            [&] { device::gemm<C>(params.as<KernelParams<C>>()); }, seed, C.cluster);
    } catch (const std::exception& error) {
        FAIL() << seed << ": " << plan::text_of(problem) << ": " << error.what();
    }
}

/// Likewise, of one to three clusters at once.
template <GemmConfig C>
void run_kernel(const cuda::Driver& driver, const Call& call, uint32_t seed) {
    run_kernel<C>(driver, call, C.cluster * (1 + seed % 3), seed);
}

/// Kernels that are candidates, whose bits the CPU gives by their names.
class CandidateKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{1};

    /// D by a kernel's text, then by the CPU.
    template <GemmConfig C, typename Args>
    void compare(const Args& args, Buffer<uint16_t>& d, uint32_t seed) {
        const std::string name = plan::name_of(C);
        const GemmOptions options{.numerics = Numerics::Hopper, .config = name};
        const Call call(args, options);
        run_kernel<C>(*driver, call, seed);
        if (HasFatalFailure()) return;
        EXPECT_TRUE(d.surroundings_intact());
        const Matrix all = d.view();
        std::vector<uint16_t> by_kernel;
        for (int64_t r = 0; r < all.rows; ++r) by_kernel.insert(by_kernel.end(), &d.at(r, 0), &d.at(r, 0) + all.cols);
        cpu_gemm(call, pool);
        for (int64_t r = 0; r < all.rows; ++r)
            for (int64_t c = 0; c < all.cols; ++c)
                ASSERT_EQ(by_kernel[static_cast<size_t>(r * all.cols + c)], d.at(r, c))
                    << name << ", " << seed << ": " << r << ", " << c;
    }
};

}  // namespace finegemm::test
