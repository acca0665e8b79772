// The CPU's K-grouped GEMM: against sums in double, against a GEMM for each group, and what it leaves alone.
#include "ops/gemm/cpu.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <numeric>

#include "ops/gemm/cpu.h"
#include "support/k_grouped.h"

namespace finegemm::cpu_k_grouped_test {
namespace {

using test::KGroupedProblem;

constexpr Numerics kAllNumerics[] = {Numerics::Fast, Numerics::Exact, Numerics::Hopper};

void run(const KGroupedGemmArgs& args, Numerics numerics, bool accumulate = false, const std::string& config = {}) {
    ThreadPool pool(2);
    cpu_gemm({args, {.numerics = numerics, .accumulate = accumulate, .config = config}}, pool);
}
void run(const GemmArgs& args, Numerics numerics, bool accumulate, const std::string& config) {
    ThreadPool pool(2);
    cpu_gemm({args, {.numerics = numerics, .accumulate = accumulate, .config = config}}, pool);
}

TEST(CpuKGrouped, KeepsTheBoundInEachNumericsAndWritesNothingElse) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
        KGroupedProblem p(33 + seed, 136, 1280, test::random_k_offsets(5, 10, seed), seed, 16, 3);
        for (const Numerics numerics : kAllNumerics) {
            p.fill_d(7);
            run(p.args(), numerics);
            for (int64_t g = 0; g < 5; ++g)
                for (int64_t r = 0; r < p.m + p.gap; ++r)
                    for (int64_t c = 0; c < p.n; ++c) {
                        if (r >= p.m) {
                            ASSERT_EQ(p.d_at(g, r, c), 7) << "between matrices " << g << " and " << g + 1;
                            continue;
                        }
                        double exact = 0, absolute = 0;
                        for (int64_t k = p.begin(g); k < p.begin(g + 1); ++k) {
                            const double scale = double{p.sfa.at(r, k / 128)} * double{p.sfb.at(c, k / 128)};
                            const double x = float_of_e4m3(p.a.at(r, k)), y = float_of_e4m3(p.b.at(c, k));
                            exact += x * y * scale;
                            absolute += std::max(std::abs(x), x != 0 ? 0x1p-6 : 0) *
                                        std::max(std::abs(y), y != 0 ? 0x1p-6 : 0) * scale;
                        }
                        const double bound = sum_bound(absolute, p.length(g) / 128, numerics);
                        // One rounding to f32 of what is within the bound.
                        ASSERT_LE(std::abs(p.d_at(g, r, c) - exact), bound + (std::abs(exact) + bound) * 0x1p-24)
                            << "group " << g << ": " << r << ", " << c;
                    }
            EXPECT_TRUE(p.d.surroundings_intact());
        }
    }
}

TEST(CpuKGrouped, HasTheBitsOfAGemmForEachGroup) {
    // With factors from the tensor cores, and without.
    const std::string kernels[] = {"m128n128s5w2_1d1d_f32", "m128n192s4w2_1d1d_f32"};
    EXPECT_NE(arithmetic_of(plan::config_named(kernels[0])), arithmetic_of(plan::config_named(kernels[1])));
    for (const bool accumulate : {false, true})
        for (const Numerics numerics : kAllNumerics)
            for (uint32_t seed = 0; seed < 4; ++seed) {
                const std::string& kernel = kernels[seed % 2];
                const auto offsets = test::random_k_offsets(6, 9, seed);
                KGroupedProblem p(253, 136, 1152, offsets, seed, 16, 1), q(253, 136, 1152, offsets, seed, 16, 1);
                p.fill_d(1e3f), q.fill_d(1e3f);
                run(p.args(), numerics, accumulate, kernel + "_kgrouped");
                for (int64_t g = 0; g < 6; ++g) run(q.dense(g), numerics, accumulate, kernel);
                for (int64_t r = 0; r < 6 * 254; ++r)
                    for (int64_t c = 0; c < 136; ++c)
                        ASSERT_EQ(float_bits(p.d.at(r, c)), float_bits(q.d.at(r, c))) << r << ", " << c;
            }
}

TEST(CpuKGrouped, InBf16IsWhatItIsInF32RoundedOnce) {
    for (const Numerics numerics : kAllNumerics) {
        KGroupedProblem p(133, 72, 1152, {0, 384, 384, 1024}, 5, 16);
        run(p.args(), numerics, false, "m128n128s5w2_1d1d_f32_kgrouped");
        test::Buffer<uint16_t> d(DType::BF16, 3 * 133, 72, 8);
        KGroupedGemmArgs args = p.args();
        args.d.matrix = d.view();
        args.d.matrix.rows = 133, args.d.stride = 133 * 80;
        run(args, numerics, false, "m128n128s5w2_1d1d_kgrouped");
        for (int64_t r = 0; r < 3 * 133; ++r)
            for (int64_t c = 0; c < 72; ++c) ASSERT_EQ(d.at(r, c), bf16_of_float(p.d.at(r, c))) << r << ", " << c;
        EXPECT_TRUE(d.surroundings_intact());
    }
}

TEST(CpuKGrouped, TakesThePlannersKernelWithoutAName) {
    const std::vector<int32_t> offsets{128, 256, 256};  // few blocks of many, and so little work
    KGroupedProblem p(768, 1024, 512, offsets, 1, 16, 1), q(768, 1024, 512, offsets, 1, 16, 1);
    const auto chosen = [&](bool batch_invariant) {
        return plan::choose(problem_of({p.args(), {.batch_invariant = batch_invariant}}), *plan::find_device("h200"))
            .config;
    };
    for (const bool batch_invariant : {false, true}) {
        ThreadPool pool(2);
        cpu_gemm({p.args(), {.numerics = Numerics::Hopper, .batch_invariant = batch_invariant}}, pool);
        run(q.args(), Numerics::Hopper, false, plan::name_of(chosen(batch_invariant)));
        for (int64_t r = 0; r < 2 * 769; ++r)
            for (int64_t c = 0; c < 1024; ++c) ASSERT_EQ(float_bits(p.d.at(r, c)), float_bits(q.d.at(r, c)));
    }
    EXPECT_EQ(arithmetic_of(chosen(false)), Arithmetic{.tensor_core_scales = true});
    EXPECT_EQ(arithmetic_of(chosen(true)), Arithmetic{});
}

TEST(CpuKGrouped, BlocksHaveTheBitsOfColumns) {
    for (const bool accumulate : {false, true})
        for (const Numerics numerics : kAllNumerics)
            for (uint32_t seed = 0; seed < 4; ++seed) {
                const auto offsets = test::random_k_offsets(6, 9, seed);
                KGroupedProblem p(133, 72, 1152, offsets, seed, 16, 1), q(133, 72, 1152, offsets, seed, 16, 1);
                p.fill_d(1e3f), q.fill_d(1e3f);
                run(p.args(), numerics, accumulate);
                run(test::KBlocks(q).args(q), numerics, accumulate);
                for (int64_t r = 0; r < 6 * 134; ++r)
                    for (int64_t c = 0; c < 72; ++c)
                        ASSERT_EQ(float_bits(p.d.at(r, c)), float_bits(q.d.at(r, c))) << r << ", " << c;
                EXPECT_TRUE(q.d.surroundings_intact());
            }
}

TEST(CpuKGrouped, AGroupWithoutKBecomesZeroOrStaysAsItIs) {
    KGroupedProblem p(5, 16, 256, {0, 128, 128, 256}, 1);
    for (const Numerics numerics : kAllNumerics) {
        p.fill_d(-0.0f);
        p.d_at(1, 2, 3) = std::numeric_limits<float>::quiet_NaN();
        run(p.args(), numerics, true);
        EXPECT_TRUE(std::signbit(p.d_at(1, 0, 0))) << "-0 would become +0 if it were added to";
        EXPECT_TRUE(std::isnan(p.d_at(1, 2, 3)));
        run(p.args(), numerics);
        for (int64_t r = 0; r < 5; ++r)
            for (int64_t c = 0; c < 16; ++c) ASSERT_EQ(float_bits(p.d_at(1, r, c)), 0u);
        EXPECT_NE(p.d_at(2, 0, 0), 0);
    }
}

TEST(CpuKGrouped, WithoutAnyKAllGroupsAreWithoutK) {
    KGroupedProblem p(5, 16, 0, {0, 0, 0}, 1);
    p.fill_d(3);
    run(p.args(), Numerics::Fast, true);
    EXPECT_EQ(p.d_at(1, 4, 15), 3);
    run(p.args(), Numerics::Fast);
    EXPECT_EQ(p.d_at(0, 0, 0), 0);
    EXPECT_EQ(p.d_at(1, 4, 15), 0);
}

TEST(CpuKGrouped, TheOrderOfGroupsChangesNoBits) {
    KGroupedProblem p(40, 72, 1024, {0, 384, 512, 1024}, 1), q(40, 72, 1024, {0, 512, 640, 1024}, 2);
    const std::vector<int64_t> position = {2, 1, 0};  // in q, of p's groups
    for (int64_t g = 0; g < 3; ++g) {
        const auto to = position[static_cast<size_t>(g)];
        for (int64_t k = 0; k < p.length(g); ++k) {
            const int64_t from_k = p.begin(g) + k, to_k = q.begin(to) + k;
            for (int64_t r = 0; r < 40; ++r) q.a.at(r, to_k) = p.a.at(r, from_k);
            for (int64_t r = 0; r < 72; ++r) q.b.at(r, to_k) = p.b.at(r, from_k);
            for (int64_t r = 0; r < 40; ++r) q.sfa.at(r, to_k / 128) = p.sfa.at(r, from_k / 128);
            for (int64_t r = 0; r < 72; ++r) q.sfb.at(r, to_k / 128) = p.sfb.at(r, from_k / 128);
        }
    }
    run(p.args(), Numerics::Hopper);
    run(q.args(), Numerics::Hopper);
    for (int64_t g = 0; g < 3; ++g)
        for (int64_t r = 0; r < 40; ++r)
            for (int64_t c = 0; c < 72; ++c)
                ASSERT_EQ(p.d_at(g, r, c), q.d_at(position[static_cast<size_t>(g)], r, c))
                    << g << ": " << r << ", " << c;
}

TEST(CpuKGrouped, HalvesOfAGroupMayBeAddedOneAfterTheOther) {
    KGroupedProblem whole(40, 72, 1024, {0, 1024}, 1), halves(40, 72, 1024, {0, 384, 1024}, 1);
    run(whole.args(), Numerics::Exact);
    KGroupedGemmArgs args = halves.args();
    args.groups = args.d.count = 1;
    run(args, Numerics::Exact);
    std::vector<float> first;
    for (int64_t r = 0; r < 40; ++r) first.insert(first.end(), &halves.d_at(0, r, 0), &halves.d_at(0, r, 0) + 72);
    ++args.offsets;
    run(args, Numerics::Exact, true);
    for (int64_t r = 0; r < 40; ++r)
        for (int64_t c = 0; c < 72; ++c) {
            const double one = whole.d_at(0, r, c), two = halves.d_at(0, r, c), part = first[size_t(r * 72 + c)];
            // A rounding of the whole, and of both sums of the halves; a little for sums in double.
            ASSERT_LE(std::abs(one - two), (std::abs(one) + std::abs(part) + std::abs(two)) * 0x1p-24 + 1e-12);
            ASSERT_NE(part, two);
        }
}

TEST(CpuKGrouped, NumbersThatBreakTheRulesStayInsideOfTheMatrices) {
    const int32_t wild[] = {INT32_MIN, 1300, -1, INT32_MAX, 77, 300, 129, 0, 1 << 30};
    KGroupedProblem p(12, 16, 640, std::vector<int32_t>(9, 0), 1);
    p.offsets.assign(std::begin(wild), std::end(wild));
    for (const Numerics numerics : kAllNumerics) {
        run(p.args(), numerics);
        EXPECT_TRUE(p.d.surroundings_intact());
        EXPECT_EQ(p.d_at(3, 0, 0), 0) << "from the end of K down to block 0 there is nothing";
    }
}

}  // namespace
}  // namespace finegemm::cpu_k_grouped_test
