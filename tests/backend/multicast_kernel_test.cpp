// The text of kernels whose CTAs share loads of A or of B, run on the host: D has the bits of the CPU's model. Layer
// tests.
#include <gtest/gtest.h>

#include <finegemm/device/gemm.cuh>

#include "ops/gemm/cpu.h"
#include "ops/gemm/hopper.h"
#include "support/matrix.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr GemmConfig sharing(ClusterUse use, uint32_t tile_m, uint32_t tile_n, uint32_t stages, uint32_t warpgroups) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = warpgroups,
            .cluster = 2,
            .cluster_use = use};
}

class MulticastKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{1};

    /// A product of two tiles or more along what CTAs share, whose last ones are ragged.
    template <GemmConfig C>
    void run(uint32_t seed) {
        test::Random random(seed);
        const int64_t m = random.any(C.tile_m * C.b_sharers() / 2 + 1, 2 * C.tile_m + 40),
                      n = 8 * random.any(C.tile_n / 8 + 1, 3 * C.tile_n / 8);
        test::Problem p(m, n, 16 * random.any(17, 60), seed, random.one_in(2), 16);
        const std::string name = plan::name_of(C);
        const GemmArgs args = p.args();
        const GemmOptions options{.numerics = Numerics::Hopper, .config = name};
        const Call call(args, options);
        const plan::Problem problem = problem_of(call);
        ASSERT_EQ(plan::rejected(problem, *plan::find_device("h200"), C), "") << name;
        const uint32_t ctas = C.cluster * (1 + seed % 3);
        const LaunchParams params = params_of(*driver, call, problem, C, ctas);
        try {
            host_kernel::launch(
                grid_size(C, most_tiles(problem, C, ctas), ctas), C.threads(),
                [&] { device::gemm<C>(params.as<KernelParams<C>>()); }, seed, C.cluster);
        } catch (const std::exception& error) {
            FAIL() << seed << ": " << plan::text_of(problem) << ": " << error.what();
        }
        EXPECT_TRUE(p.d.surroundings_intact());
        std::vector<uint16_t> by_kernel;
        for (int64_t r = 0; r < m; ++r) by_kernel.insert(by_kernel.end(), &p.d.at(r, 0), &p.d.at(r, 0) + n);
        cpu_gemm(call, pool);
        for (int64_t r = 0; r < m; ++r)
            for (int64_t c = 0; c < n; ++c)
                ASSERT_EQ(by_kernel[static_cast<size_t>(r * n + c)], p.d.at(r, c)) << seed << ": " << r << ", " << c;
    }
};

TEST_F(MulticastKernel, HasTheBitsOfTheCpu) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        run<sharing(ClusterUse::ShareA, 64, 64, 12, 2)>(seed);
        run<sharing(ClusterUse::ShareA, 192, 96, 5, 3)>(seed);
        run<sharing(ClusterUse::ShareA, 256, 128, 4, 2)>(seed);
        run<sharing(ClusterUse::ShareB, 128, 192, 4, 2)>(seed);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
