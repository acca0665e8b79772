// Products of integers: the CPU's sums against whole numbers, and the text of the kernels, run on the host, against the
// CPU's bits. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include "gemm_reference.h"
#include "ops/gemm/cpu.h"
#include "support/gemm_kernel.h"
#include "support/grouped.h"
#include "support/hopper.h"
#include "support/matrix.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr Operand kRows{.element = Element::I8}, kBlocks{.element = Element::I8, .scaling = Scaling::Blocks};

constexpr GemmConfig config(uint32_t tile_m, uint32_t tile_n, uint32_t stages, uint32_t warpgroups,
                            Grouping grouping = Grouping::None, const Operand& b = kBlocks) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = warpgroups,
            .ctas_per_sm = tile_m == 64 && warpgroups == 1 && tile_n <= 64 ? 2u : 1,
            .grouping = grouping,
            .a = kRows,
            .b = b};
}
constexpr GemmConfig kSplit{.tile_m = 64,
                            .tile_n = 32,
                            .stages = 7,
                            .math_warpgroups = 1,
                            .cluster = 3,
                            .cluster_use = ClusterUse::SplitK,
                            .ctas_per_sm = 2,
                            .a = kRows,
                            .b = kBlocks};

/// Any codes, -128 among them.
template <typename Problem>
void make_integers(Problem& p, uint32_t seed) {
    std::mt19937 random(seed);
    for (auto* codes : {&p.a, &p.b}) {
        const Matrix all = codes->view();
        for (int64_t r = 0; r < all.rows; ++r)
            for (int64_t c = 0; c < all.cols; ++c) codes->at(r, c) = static_cast<uint8_t>(random());
    }
}
GemmArgs integers(GemmArgs args) {
    args.a.dtype = args.b.dtype = DType::I8;
    return args;
}
GroupedGemmArgs integers(GroupedGemmArgs args) {
    args.a.matrix.dtype = args.b.matrix.dtype = DType::I8;
    return args;
}

TEST(CpuIntegers, AreSummedExactlyInABlockAndInF32BetweenThem) {
    ThreadPool pool{2};
    for (const bool row_b_scales : {false, true}) {
        test::Problem p(37, 136, 400, 3, false, 16, row_b_scales);
        make_integers(p, 5);
        for (int64_t k = 0; k < 128; ++k) p.a.at(4, k) = p.b.at(7, k) = 0x80;  // the largest sum: 128 * 2^14
        test::for_each_instruction_set([&] {
            GemmOptions options{.numerics = Numerics::Hopper,
                                .config = row_b_scales ? "m64n64s5w1_x2_1d1d_i8" : "m64n64s6w1_x2_i8"};
            cpu_gemm({integers(p.args()), options}, pool);
            for (int64_t r = 0; r < p.m; ++r)
                for (int64_t c = 0; c < p.n; ++c) {
                    float sum = 0;
                    for (int64_t kb = 0; kb < test::Problem::blocks(p.k); ++kb) {
                        int64_t block = 0;
                        for (int64_t k = 128 * kb; k < std::min<int64_t>(p.k, 128 * (kb + 1)); ++k)
                            block += int64_t{static_cast<int8_t>(p.a.at(r, k))} * static_cast<int8_t>(p.b.at(c, k));
                        sum = std::fma(static_cast<float>(block), p.sfa_at(r, kb) * p.sfb_at(c, kb), sum);
                    }
                    ASSERT_EQ(p.d.at(r, c), bf16_of_float(sum)) << row_b_scales << ": " << r << ", " << c;
                }
        });
    }
}

class IntegersKernel : public test::CandidateKernel {
protected:
    template <GemmConfig C>
    void dense(uint32_t seed) {
        test::Random random(seed);
        const int64_t m = random.any(C.tile_m / 2 + 1, C.tile_m + 70), n = 8 * random.any(1, 2 * C.tile_n / 8);
        const int64_t least = 8 * (C.k_slices() * C.k_splits() - 1) + 1;
        test::Problem p(m, n, 16 * random.any(least, least + 30), seed, random.one_in(2), 16, C.row_b_scales());
        make_integers(p, seed);
        compare<C>(integers(p.args()), p.d, seed);
    }

    template <GemmConfig C>
    void grouped(uint32_t seed, GroupForm form) {
        test::Random random(seed);
        const int64_t groups = random.any(1, 3), n = 8 * random.any(1, 2 * C.tile_n / 8);
        const bool masked = form == GroupForm::Masked;
        test::GroupedProblem p(test::random_grouping(form, groups, masked ? 90 : 260, 64, seed), n,
                               16 * random.any(1, 24), seed, 16);
        make_integers(p, seed);
        compare<C>(integers(p.args()), p.d, seed);
    }
};

TEST_F(IntegersKernel, HasTheBitsOfTheCpuForOneProduct) {
    for (uint32_t seed = 1; seed <= test::random_cases(1); ++seed) {
        dense<config(64, 64, 6, 1)>(seed);
        dense<config(64, 32, 16, 2)>(seed);
        dense<kSplit>(seed);
        dense<config(128, 144, 6, 2)>(seed);
        dense<config(256, 128, 4, 2)>(seed);
        dense<config(64, 64, 5, 1, Grouping::None, kRows)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(IntegersKernel, HasTheBitsOfTheCpuForGroupsInEveryForm) {
    uint32_t seed = 0;
    for (uint32_t round = 1; round <= test::random_cases(1); ++round)
        for (const GroupForm form : test::kAllForms) {
            grouped<config(64, 64, 6, 1, Grouping::Rows)>(++seed, form);
            grouped<config(128, 128, 6, 2, Grouping::Rows)>(++seed, form);
            if (HasFatalFailure()) return;
        }
}

}  // namespace
}  // namespace finegemm
