// The CPU backend's GEMM: against the definition, within bounds that docs/numerics.md derives.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "gemm_reference.h"
#include "ops/gemm/cpu.h"
#include "support/cpu.h"
#include "support/sparse.h"

namespace finegemm {
namespace {

using test::cpu_backend;
using test::Problem;
using test::Sparse;

constexpr Numerics kAllNumerics[] = {Numerics::Fast, Numerics::Exact, Numerics::Hopper};

void run(Problem& p, Numerics numerics, int threads = 2) {
    GemmOptions options;
    options.numerics = numerics;
    cpu_backend(threads)->gemm({p.args(), options});
}

std::vector<uint16_t> bits(Problem& p) {
    std::vector<uint16_t> all;
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t c = 0; c < p.n; ++c) all.push_back(p.d.at(r, c));
    return all;
}

struct Case {
    int64_t m, n, k;
    bool mn_major = false;
    int64_t padding = 0;
    bool any_codes = false;
    uint32_t seed = 1;
};
void PrintTo(const Case& c, std::ostream* out) {
    *out << c.m << "x" << c.n << "x" << c.k << (c.mn_major ? " MN-major scales" : "") << " padding " << c.padding
         << (c.any_codes ? " any codes" : "") << " seed " << c.seed;
}

/// Edges of tiles, vectors and blocks, then random shapes.
std::vector<Case> cases() {
    std::vector<Case> all{
        {1, 8, 16},          {1, 136, 128, true},       {7, 24, 144, true, 16}, {64, 128, 256, false, 16},
        {3, 264, 400, true}, {253, 120, 144, true, 32}, {2, 8, 2064},           {252, 8, 128}};
    std::mt19937 random(2024);
    const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    for (uint32_t seed = 0; seed < 24; ++seed)
        all.push_back({.m = 1 + below(70),
                       .n = 8 + 8 * below(40),
                       .k = 16 + 16 * below(60),
                       .mn_major = below(2) == 1,
                       .padding = 16 * below(3),
                       .any_codes = below(2) == 1,
                       .seed = seed});
    return all;
}

class CpuGemm : public testing::TestWithParam<Case> {};

TEST_P(CpuGemm, KeepsTheBoundInEachNumericsAndWritesNothingElse) {
    const Case s = GetParam();
    Problem p(s.m, s.n, s.k, s.seed, s.mn_major, s.padding);
    if (s.any_codes) test::fill_with_any_codes(p, s.seed);
    const test::Sums sums = test::sums_of(p);
    for (const Numerics numerics : kAllNumerics) {
        run(p, numerics);
        const std::vector<uint16_t> got = bits(p);
        for (size_t i = 0; i < got.size(); ++i)
            ASSERT_LE(std::abs(float_of_bf16(got[i]) - sums.exact[i]),
                      error_bound(sums.absolute[i], sums.exact[i], Problem::blocks(s.k), numerics))
                << "numerics " << static_cast<int>(numerics) << ", element " << i;
        EXPECT_TRUE(p.d.surroundings_intact());
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuGemm, testing::ValuesIn(cases()));

TEST(CpuGemmNumerics, KeepTheBoundWithEveryInstructionSet) {
    Problem p(13, 136, 400, 3);
    const test::Sums sums = test::sums_of(p);
    test::for_each_instruction_set([&] {
        for (const Numerics numerics : kAllNumerics) {
            run(p, numerics);
            const std::vector<uint16_t> got = bits(p);
            for (size_t i = 0; i < got.size(); ++i)
                ASSERT_LE(std::abs(float_of_bf16(got[i]) - sums.exact[i]),
                          error_bound(sums.absolute[i], sums.exact[i], 4, numerics));
        }
    });
}

TEST(CpuGemmNumerics, DoNotDependOnTheNumberOfThreads) {
    for (const Numerics numerics : kAllNumerics) {
        Problem one(300, 264, 272, 5), many(300, 264, 272, 5);
        run(one, numerics, 1);
        run(many, numerics, 4);
        EXPECT_EQ(bits(one), bits(many));
    }
}

TEST(CpuGemmNumerics, HaveTilesThatCoverEachRowAndAreLowWhereKIsLong) {
    for (const Numerics numerics : {Numerics::Fast, Numerics::Exact, Numerics::Hopper})
        for (const int64_t k : {0, 4096, 65536, 1 << 24, INT32_MAX - 15}) {
            GemmArgs args{};
            args.a.cols = k, args.d.rows = 1000, args.d.cols = 200;
            std::vector<int> covered(1000 * 200);
            for (int64_t i = 0; i < cpu_tiles_of(args, numerics); ++i) {
                const CpuTile t = cpu_tile_at(args, numerics, i);
                EXPECT_TRUE(t.rows <= 6 || t.rows * k <= int64_t{1} << 24) << t.rows << " rows at K = " << k;
                for (int64_t r = 0; r < t.rows; ++r)
                    for (int64_t c = 0; c < t.cols; ++c) ++covered[static_cast<size_t>((t.row + r) * 200 + t.col + c)];
            }
            EXPECT_EQ(std::ranges::count(covered, 1), 1000 * 200) << "K = " << k;
        }
}

TEST(CpuGemmNumerics, MakeNanOfNanInItsRowOrColumnOnly) {
    for (const Numerics numerics : kAllNumerics) {
        Problem p(3, 16, 272, 4);
        p.a.at(1, 200) = 0x7f;
        p.b.at(5, 3) = 0xff;
        run(p, numerics);
        for (int64_t r = 0; r < 3; ++r)
            for (int64_t c = 0; c < 16; ++c) {
                if (r == 1 || c == 5) EXPECT_EQ(p.d.at(r, c), 0x7fff);
                else EXPECT_FALSE(std::isnan(float_of_bf16(p.d.at(r, c))));
            }
    }
}

TEST(CpuGemmNumerics, WriteZerosForZeroK) {
    for (const Numerics numerics : kAllNumerics) {
        Problem p(3, 16, 0, 1);
        run(p, numerics);
        EXPECT_EQ(bits(p), std::vector<uint16_t>(3 * 16, 0));
    }
}

TEST(CpuGemmExact, RoundsOnce) {
    // 1 + 2^-8 + 2^-30 lies above the tie of 1 and 1 + 2^-7. Rounded to float first, it becomes the tie, and then 1.
    Problem p(1, 8, 256, 1);
    test::fill_with_zeros(p);
    p.a.at(0, 0) = p.b.at(0, 0) = p.a.at(0, 128) = p.b.at(0, 128) = e4m3_of_float(1);
    p.a.at(0, 1) = p.b.at(0, 1) = e4m3_of_float(0x1p-4f);
    p.sfa.at(0, 0) = p.sfb.at(0, 0) = p.sfb.at(0, 1) = 1;
    p.sfa.at(0, 1) = 0x1p-30f;
    run(p, Numerics::Exact);
    EXPECT_EQ(float_of_bf16(p.d.at(0, 0)), 1 + 0x1p-7f);
}

TEST(CpuGemmExact, GivesItsSumsBeforeRounding) {
    Problem p(17, 136, 400, 8, true, 16);
    std::vector<double> sums(17 * 136);
    ThreadPool pool(2);
    cpu_gemm_exact(p.args(), pool, sums.data());
    const test::Sums expected = test::sums_of(p);
    run(p, Numerics::Exact);
    for (size_t i = 0; i < sums.size(); ++i) {
        EXPECT_NEAR(sums[i], expected.exact[i], expected.absolute[i] * 0x1p-44);
        EXPECT_EQ(bits(p)[i], bf16_of_double(sums[i]));
    }
}

TEST(CpuBackend, ServesManyThreadsAtOnce) {
    const auto backend = cpu_backend(3);
    Problem expected(40, 136, 272, 6);
    run(expected, Numerics::Fast);
    std::vector<std::thread> callers;
    for (int t = 0; t < 4; ++t)
        callers.emplace_back([&] {
            Problem p(40, 136, 272, 6);
            for (int i = 0; i < 5; ++i) backend->gemm({p.args(), {}});
            EXPECT_EQ(bits(p), bits(expected));
        });
    for (std::thread& caller : callers) caller.join();
}

TEST(CpuBackend, ReachesElementsBeyond2To31) {
    Problem p(3, 16, 144, 7), expected(3, 16, 144, 7);
    constexpr int64_t kStride = (int64_t{1} << 31) + 16;
    const Sparse a(2 * kStride + 4096), d(2 * kStride * 2 + 4096);
    if (!a.ok() || !d.ok()) GTEST_SKIP() << "no 12 GiB of address space here";
    for (int64_t r = 0; r < 3; ++r) std::copy_n(&p.a.at(r, 0), 144, a.as<uint8_t>() + r * kStride);
    GemmArgs args = p.args();
    args.a.data = a.as<uint8_t>();
    args.d.data = d.as<uint16_t>();
    args.a.row_stride = args.d.row_stride = kStride;
    for (const Numerics numerics : kAllNumerics) {
        GemmOptions options;
        options.numerics = numerics;
        cpu_backend(1)->gemm({args, options});
        run(expected, numerics);
        for (int64_t r = 0; r < 3; ++r)
            for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(d.as<uint16_t>()[r * kStride + c], expected.d.at(r, c));
    }
}

}  // namespace
}  // namespace finegemm
