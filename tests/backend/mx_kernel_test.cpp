// Products with MX scales: the CPU's sums against a model of the tensor cores, and the text of the kernels, run on the
// host, against the CPU's bits. Layer tests.
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
#include "support/wgmma_model.h"

namespace finegemm {
namespace {

constexpr Operand kMx{.scaling = Scaling::Mx};

constexpr GemmConfig config(uint32_t tile_m, uint32_t tile_n, uint32_t stages, uint32_t warpgroups,
                            Grouping grouping = Grouping::None, const Operand& a = kMx) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = warpgroups,
            .ctas_per_sm = warpgroups == 1 ? 2u : 1,
            .grouping = grouping,
            .a = a,
            .b = kMx};
}
constexpr GemmConfig two_on_an_sm(GemmConfig c) {
    c.ctas_per_sm = 2;
    return c;
}
constexpr GemmConfig split(uint32_t cluster, GemmConfig c) {
    c.cluster = cluster, c.cluster_use = ClusterUse::SplitK;
    return c;
}

/// Four exponents from 2^-20 to 2^20 or so, now and then 0, which is no scale at all.
float random_word(std::mt19937& random) {
    uint32_t word = 0;
    for (uint32_t part = 0; part < kMxParts; ++part)
        word |= (random() % 50 == 0 ? 0 : 107 + static_cast<uint32_t>(random() % 41)) << 8 * part;
    return float_of_bits(word);
}
void make_words(test::Buffer<float>& scales, uint32_t seed) {
    std::mt19937 random(seed);
    const Matrix all = scales.view();
    for (int64_t r = 0; r < all.rows; ++r)
        for (int64_t c = 0; c < all.cols; ++c) scales.at(r, c) = random_word(random);
}

/// Operands with MX scales of B, and of A or not.
GemmArgs with_mx(GemmArgs args, bool of_a) {
    if (of_a) args.sfa.dtype = DType::UE8M0x4;
    args.sfb.dtype = DType::UE8M0x4;
    return args;
}
GroupedGemmArgs with_mx(GroupedGemmArgs args, bool of_a) {
    if (of_a) args.sfa.matrix.dtype = DType::UE8M0x4;
    args.sfb.matrix.dtype = DType::UE8M0x4;
    return args;
}
template <typename Problem>
void make_scales(Problem& p, bool of_a, uint32_t seed) {
    if (of_a) make_words(p.sfa, seed);
    make_words(p.sfb, seed + 1);
}

/// The scale of a row in a part of a k-block.
float scale_of(float word, bool mx, int64_t part) {
    return mx ? float_of_bits(mx_scale_bits(float_bits(word), static_cast<uint32_t>(part))) : word;
}

TEST(CpuMx, AddsTheProductsOfEach32OfKTimesTheirScales) {
    ThreadPool pool{2};
    for (const bool of_a : {true, false}) {
        test::Problem p(37, 136, 400, 3, false, 16, true);
        make_scales(p, of_a, 5);
        for (int64_t c = 0; c < 64; ++c) p.a.at(5, c) = 0x7f;  // NaN
        test::for_each_instruction_set([&] {
            cpu_gemm({with_mx(p.args(), of_a),
                      {.numerics = Numerics::Hopper, .config = of_a ? "m64n64s5w1_x2_mx" : "m128n64s8w2_mxb"}},
                     pool);
            for (int64_t r = 0; r < p.m; ++r)
                for (int64_t c = 0; c < p.n; ++c) {
                    float sum = 0, of_parts = 0;  // under one scale of A
                    for (int64_t k = 0; k < p.k; k += kMxCols) {
                        std::vector<uint8_t> a(kMxCols), b(kMxCols);
                        for (int64_t i = 0; i < std::min<int64_t>(kMxCols, p.k - k); ++i)
                            a[static_cast<size_t>(i)] = p.a.at(r, k + i), b[static_cast<size_t>(i)] = p.b.at(c, k + i);
                        const float sfa = scale_of(p.sfa_at(r, k / 128), of_a, k % 128 / kMxCols);
                        const float sfb = scale_of(p.sfb_at(c, k / 128), true, k % 128 / kMxCols);
                        const float product = wgmma_product(a, b, 1, 1, kMxCols)[0];
                        if (of_a) {
                            sum = std::fma(product, sfa * sfb, sum);
                            continue;
                        }
                        of_parts = std::fma(product, sfb, k % 128 == 0 ? 0.0f : of_parts);
                        if (k % 128 + kMxCols == 128 || k + kMxCols >= p.k) sum = std::fma(of_parts, sfa, sum);
                    }
                    if (std::isnan(sum)) ASSERT_TRUE(std::isnan(float_of_bf16(p.d.at(r, c)))) << r << ", " << c;
                    else ASSERT_EQ(p.d.at(r, c), bf16_of_float(sum)) << of_a << ": " << r << ", " << c;
                }
        });
    }
}

TEST(CpuMx, IsWhatFloatsOfTheSameScalesGive) {
    ThreadPool pool{2};
    test::Problem p(33, 72, 272, 4, true, 0, true);
    std::mt19937 random(8);
    // All four scales of a k-block are one: then it is a product of 1x128 scales, to the rounding of D.
    test::Problem floats(33, 72, 272, 4, true, 0, true);
    for (auto [mx, of_float] : {std::pair{&p.sfa, &floats.sfa}, {&p.sfb, &floats.sfb}}) {
        const Matrix all = mx->view();
        for (int64_t r = 0; r < all.rows; ++r)
            for (int64_t c = 0; c < all.cols; ++c) {
                const auto e = 120 + static_cast<uint32_t>(random() % 9);
                mx->at(r, c) = float_of_bits(e * 0x01010101u);
                of_float->at(r, c) = float_of_bits(e << 23);
            }
    }
    cpu_gemm({with_mx(p.args(), true), {.numerics = Numerics::Exact}}, pool);
    cpu_gemm({floats.args(), {.numerics = Numerics::Exact}}, pool);
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t c = 0; c < p.n; ++c) ASSERT_EQ(p.d.at(r, c), floats.d.at(r, c)) << r << ", " << c;
}

class MxKernel : public test::CandidateKernel {
protected:
    template <GemmConfig C>
    void dense(uint32_t seed) {
        constexpr bool kOfA = C.a.scaling == Scaling::Mx;
        test::Random random(seed);
        const int64_t m = random.any(C.tile_m / 2 + 1, C.tile_m + 70), n = 8 * random.any(1, 2 * C.tile_n / 8);
        const int64_t least = 8 * (C.k_slices() * C.k_splits() - 1) + 1;
        test::Problem p(m, n, 16 * random.any(least, least + 30), seed, random.one_in(2), 16, true);
        make_scales(p, kOfA, seed);
        compare<C>(with_mx(p.args(), kOfA), p.d, seed);
    }

    template <GemmConfig C>
    void grouped(uint32_t seed, GroupForm form) {
        constexpr bool kOfA = C.a.scaling == Scaling::Mx;
        test::Random random(seed);
        const int64_t groups = random.any(1, 3), n = 8 * random.any(1, 2 * C.tile_n / 8);
        const bool masked = form == GroupForm::Masked;
        test::GroupedProblem p(test::random_grouping(form, groups, masked ? 90 : 260, 64, seed), n,
                               16 * random.any(1, 24), seed, 16, 0, true);
        make_scales(p, kOfA, seed);
        compare<C>(with_mx(p.args(), kOfA), p.d, seed);
    }
};

TEST_F(MxKernel, HasTheBitsOfTheCpuForOneProduct) {
    for (uint32_t seed = 1; seed <= test::random_cases(1); ++seed) {
        dense<config(64, 64, 5, 1)>(seed);
        dense<config(64, 64, 12, 2)>(seed);
        dense<split(2, config(64, 64, 10, 2))>(seed);
        dense<config(16, 64, 8, 1)>(seed);
        dense<two_on_an_sm(config(16, 64, 8, 2))>(seed);
        dense<config(32, 64, 7, 1)>(seed);
        dense<config(32, 64, 14, 2)>(seed);
        dense<split(5, config(64, 32, 7, 1))>(seed);
        dense<split(2, config(64, 64, 5, 1))>(seed);
        dense<split(2, two_on_an_sm(config(16, 64, 8, 2)))>(seed);
        dense<split(8, config(16, 64, 8, 1))>(seed);
        dense<split(2, config(32, 64, 7, 1))>(seed);
        dense<config(64, 64, 10, 2, Grouping::None, kRowScaled)>(seed);
        dense<config(128, 64, 8, 2, Grouping::None, kRowScaled)>(seed);
        if (HasFatalFailure()) return;
    }
}

TEST_F(MxKernel, HasTheBitsOfTheCpuForGroupsInEveryForm) {
    uint32_t seed = 0;
    for (uint32_t round = 1; round <= test::random_cases(1); ++round)
        for (const GroupForm form : test::kAllForms) {
            grouped<config(64, 64, 5, 1, Grouping::Rows)>(++seed, form);
            grouped<config(64, 64, 5, 1, Grouping::Rows, kRowScaled)>(++seed, form);
            if (HasFatalFailure()) return;
        }
}

}  // namespace
}  // namespace finegemm
