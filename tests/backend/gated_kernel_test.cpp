// The text of kernels whose D is the SwiGLU of the product, quantised, run on the host: launches are the backend's, and
// D and its scales have the bits of the CPU's model. Layer tests.
#include <gtest/gtest.h>

#include "ops/gemm/cpu.h"
#include "support/gemm_kernel.h"
#include "support/grouped.h"
#include "support/matrix.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr GemmConfig alone(Grouping grouping) {
    return {
        .tile_m = 128, .tile_n = 256, .stages = 4, .math_warpgroups = 2, .grouping = grouping, .finish = Finish::Gated};
}

/// Two CTAs have the columns of a scale.
constexpr GemmConfig pair(uint32_t tile_m, uint32_t stages, uint32_t ctas_per_sm, Grouping grouping) {
    return {.tile_m = tile_m,
            .tile_n = 128,
            .stages = stages,
            .math_warpgroups = tile_m / 64,
            .cluster = 2,
            .cluster_use = ClusterUse::ShareA,
            .ctas_per_sm = ctas_per_sm,
            .grouping = grouping,
            .finish = Finish::Gated};
}

/// D, its scales and the weights of rows, of `rows` rows in all, in `count` matrices; twice, as two backends write
/// them.
struct Results {
    test::Buffer<uint8_t> d;
    test::Buffer<float> scales, weights;
    int64_t count;
    bool mn_major;

    Results(int64_t matrices, int64_t rows, int64_t cols, bool columns, test::Random& random)
        : d(DType::E4M3, rows, cols, 16),
          scales(DType::F32, columns ? matrices * cols / 128 : rows, columns ? rows / matrices : cols / 128, 1),
          weights(DType::F32, rows, 1, 1),
          count(matrices),
          mn_major(columns) {
        for (int64_t r = 0; r < rows; ++r) weights.at(r, 0) = random.normal(1);
    }
    static Stack stack_of(Matrix m, int64_t count) {
        m.rows /= count;
        return {m, count, m.rows * m.row_stride};
    }
    Stack d_stack() { return stack_of(d.view(), count); }
    void add_to(Epilogue& epilogue, bool weighted) {
        epilogue.sfd = stack_of(scales.view(), count);
        if (Matrix& s = epilogue.sfd.matrix; mn_major) std::swap(s.rows, s.cols), std::swap(s.row_stride, s.col_stride);
        if (weighted) epilogue.row_weights.rows = stack_of(weights.view(), count);
    }
    bool surroundings_intact() { return d.surroundings_intact() && scales.surroundings_intact(); }
};

class GatedKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{1};

    static Epilogue any_rule(test::Random& random) {
        Epilogue x;
        if (random.one_in(2)) x.gate_limit = 7.0f, x.gate_alpha = 1.702f, x.up_offset = 1;
        x.bf16_between = random.one_in(2);
        x.power_of_two_sfd = random.one_in(2);
        return x;
    }

    /// The product twice: by a kernel's text, and by the CPU. `args`: but for D.
    template <GemmConfig C, typename Args, typename SetD>
    void compare(Args args, const Epilogue& rule, Results& there, Results& here, const SetD& set_d, uint32_t seed) {
        const bool weighted = seed % 2 == 0;
        GemmOptions on_cpu{.numerics = Numerics::Hopper, .epilogue = rule}, on_gpu = on_cpu;
        here.add_to(on_cpu.epilogue, weighted);
        set_d(args, here.d_stack());
        cpu_gemm({args, on_cpu}, pool);
        there.add_to(on_gpu.epilogue, weighted);
        set_d(args, there.d_stack());
        const Call call(args, on_gpu);
        test::run_kernel<C>(*driver, call, seed);
        if (HasFatalFailure()) return;
        EXPECT_TRUE(there.surroundings_intact());
        for (int64_t r = 0; r < here.d.view().rows; ++r)
            for (int64_t c = 0; c < here.d.view().cols; ++c)
                ASSERT_EQ(there.d.at(r, c), here.d.at(r, c)) << seed << ": row " << r << ", column " << c;
        for (int64_t r = 0; r < here.scales.view().rows; ++r)
            for (int64_t c = 0; c < here.scales.view().cols; ++c)
                ASSERT_EQ(float_bits(there.scales.at(r, c)), float_bits(here.scales.at(r, c)))
                    << seed << ": scale " << r << ", " << c;
    }

    template <GemmConfig C>
    void dense(uint32_t seed) {
        test::Random random(seed);
        const int64_t m = random.any(C.tile_m / 2 + 1, C.tile_m + 70), n = 256 * random.any(1, 2);
        test::Problem p(m, n, 16 * random.any(1, 20), seed, random.one_in(2), 16);
        p.a.at(m / 2, 3) = 0x7f;  // NaN stays in its row
        p.sfa.at(0, 0) = 1e38f;   // which is infinite, as some of its products are
        const bool columns = random.one_in(2);
        test::Random numbers(seed), same(seed);
        Results there(1, m, n / 2, columns, numbers), here(1, m, n / 2, columns, same);
        compare<C>(
            p.args(), any_rule(random), there, here, [](GemmArgs& args, const Stack& d) { args.d = d.matrix; }, seed);
    }

    template <GemmConfig C>
    void grouped(uint32_t seed, GroupForm form) {
        test::Random random(seed);
        const int64_t n = 256 * random.any(1, 2), groups = random.any(1, 3);
        const bool masked = form == GroupForm::Masked, columns = random.one_in(2);
        test::GroupedProblem p(test::random_grouping(form, groups, masked ? 90 : 260, 64, seed), n,
                               16 * random.any(1, 16), seed, 16);
        const int64_t matrices = masked ? groups : 1;
        test::Random numbers(seed), same(seed);
        Results there(matrices, p.rows(), n / 2, columns, numbers), here(matrices, p.rows(), n / 2, columns, same);
        compare<C>(
            p.args(), any_rule(random), there, here, [](GroupedGemmArgs& args, const Stack& d) { args.d = d; }, seed);
    }
};

TEST_F(GatedKernel, HasTheBitsOfTheCpuForOneProduct) {
    for (uint32_t seed = 1; seed <= test::random_cases(2); ++seed) {
        dense<alone(Grouping::None)>(seed);
        dense<pair(64, 4, 2, Grouping::None)>(seed);
        dense<pair(192, 4, 1, Grouping::None)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(GatedKernel, HasTheBitsOfTheCpuForGroupsInEveryForm) {
    uint32_t seed = 0;
    for (uint32_t round = 1; round <= test::random_cases(1); ++round)
        for (const GroupForm form : test::kAllForms) {
            grouped<alone(Grouping::Rows)>(++seed, form);
            grouped<pair(64, 4, 2, Grouping::Rows)>(++seed, form);
            grouped<pair(64, 8, 1, Grouping::Rows)>(++seed, form);
            grouped<pair(192, 4, 1, Grouping::Rows)>(++seed, form);
            if (HasFatalFailure()) return;
        }
}

}  // namespace
}  // namespace finegemm
