// Kernels of products that count the rows of groups in few choices, run on the host: what they take before kernels
// before them have ended, and the bits of the CPU. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/gemm.cuh>

#include "ops/gemm/cpu.h"
#include "ops/gemm/hopper.h"
#include "ops/routing/cpu.h"
#include "ops/routing/hopper.h"
#include "support/grouped.h"
#include "support/mock_driver.h"
#include "support/random_cases.h"
#include "support/routing.h"

namespace finegemm {
namespace {

/// Few choices, of few experts so that weights are small.
struct Choices : test::RouteProblem {
    explicit Choices(test::Random& r) : RouteProblem(r, 20) {
        form = GroupForm::Offsets, permuted = false;
        tokens = std::clamp<int64_t>(tokens, 1, kCountedChoices / k);
        const int64_t last = experts - 1;
        experts = std::min<int64_t>(experts, 12);
        ids.resize(static_cast<size_t>(tokens * ids_stride), first);
        for (int64_t& id : ids)
            if (id >= first && id <= first + last) id = first + (id - first) % experts;
        rows = std::max<int64_t>(1, r.one_in(4) ? r.any(1, tokens * k) : tokens * k + r.any(0, 9));
    }
};

class CountedChoicesKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{1};

    void TearDown() override { host_kernel::earlier.clear(); }

    /// D by the kernel's text, then by the CPU from the numbers of route.
    template <GemmConfig C>
    void compare(uint32_t seed) {
        test::Random random(seed);
        const Choices choices(random);
        choices.run([&](const RouteCall& route) {
            run_on_cpu(route, pool);
            const auto* const numbers = static_cast<const int32_t*>(route.numbers.data);
            const test::Grouping grouping{.form = GroupForm::Offsets,
                                          .groups = route.experts,
                                          .m = route.rows,
                                          .numbers = {numbers, numbers + route.experts + 1}};
            test::GroupedProblem p(grouping, 8 * random.any(1, 40), 16 * random.any(1, 12 * C.stages), seed,
                                   16 * random.any(0, 1));
            launch<C>(p, counted_choices(route), seed);
        });
    }

    template <GemmConfig C>
    void launch(test::GroupedProblem& p, const CountedChoices& choices, uint32_t seed) {
        const GemmOptions options{.numerics = Numerics::Hopper, .prefetch_weights = seed % 2 == 1};
        Call call(p.args(), options);
        call.choices = choices;
        const plan::Problem problem = problem_of(call);
        const uint32_t ctas = 1 + seed % 5;
        const LaunchParams params = params_of(*driver, call, problem, C, ctas);
        for (const ConstMatrix& x : {call.a.matrix, call.sfa.matrix})
            host_kernel::earlier.push_back({x.data, static_cast<size_t>(x.rows * x.row_stride * size_of(x.dtype))});
        host_kernel::earlier.push_back({p.d.data(), static_cast<size_t>(p.d.view().rows * p.d.view().row_stride * 2)});
        host_kernel::earlier.push_back({call.groups.data, static_cast<size_t>(call.groups.size * 4)});
        try {
            host_kernel::launch(
                grid_size(C, most_tiles(problem, C, ctas), ctas), C.threads(),
                [&] { device::gemm<C>(params.as<KernelParams<C>>()); }, seed);
        } catch (const std::exception& error) {
            FAIL() << seed << ": " << plan::text_of(problem) << ": " << error.what();
        }
        host_kernel::earlier.clear();
        EXPECT_TRUE(p.d.surroundings_intact());
        std::vector<uint16_t> by_kernel;
        for (int64_t r = 0; r < p.rows(); ++r) by_kernel.insert(by_kernel.end(), &p.d.at(r, 0), &p.d.at(r, 0) + p.n);
        cpu_gemm(call, pool);
        for (int64_t r = 0; r < p.rows(); ++r)
            for (int64_t c = 0; c < p.n; ++c)
                ASSERT_EQ(by_kernel[static_cast<size_t>(r * p.n + c)], p.d.at(r, c))
                    << seed << ": row " << r << ", column " << c;
    }
};

constexpr GemmConfig counted(uint32_t tile_n, uint32_t stages, uint32_t ctas_per_sm) {
    return {.tile_m = 64,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = 1,
            .ctas_per_sm = ctas_per_sm,
            .grouping = Grouping::Rows,
            .counts_choices = true};
}

TEST_F(CountedChoicesKernel, WaitsForAAndHasTheBitsOfTheCpu) {
    for (uint32_t seed = 1; seed <= test::random_cases(6); ++seed) {
        compare<counted(128, 8, 1)>(3 * seed);
        compare<counted(64, 6, 2)>(3 * seed + 1);
        compare<counted(32, 8, 2)>(3 * seed + 2);
        if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
