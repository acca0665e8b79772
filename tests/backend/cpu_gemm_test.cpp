// The CPU backend's GEMM: against a plain triple loop, against the hardware, against the derived bound.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

#include <finegemm/error.h>

#include "backend/cpu.h"
#include "backend/cpu_gemm.h"
#include "backend/cpu_tiles.h"
#include "support/matrix.h"

namespace finegemm {
namespace {

using test::Problem;

struct Reference {
    double sum = 0, absolute = 0;
};

/// Element (r, c) by the definition. Subnormal codes count as 2^-6 in `absolute`, as the bound wants.
Reference reference(Problem& p, int64_t r, int64_t c) {
    Reference x;
    const auto magnitude = [](float v) { return v == 0 ? 0.0 : std::max(std::abs(static_cast<double>(v)), 0x1p-6); };
    for (int64_t k = 0; k < p.k; ++k) {
        const float a = float_of_e4m3(p.a.at(r, k)), b = float_of_e4m3(p.b.at(c, k));
        const double scale = static_cast<double>(p.sfa_at(r, k / 128)) * p.sfb_at(c / 128, k / 128);
        x.sum += static_cast<double>(a) * b * scale;
        x.absolute += magnitude(a) * magnitude(b) * scale;
    }
    return x;
}

void run(Problem& p, Numerics numerics, const std::string& config = {}) {
    Options options;
    options.cpu_threads = 2;
    GemmOptions g;
    g.numerics = numerics;
    g.config = config;
    make_cpu_backend(options)->gemm(p.args(), g);
}

struct Shape {
    int64_t m, n, k;
};
constexpr Shape kShapes[] = {{1, 8, 16},   {1, 136, 128},  {7, 24, 144},    {64, 128, 256},
                             {3, 264, 400}, {255, 120, 640}, {300, 136, 1040}, {2, 8, 2064}};

class CpuGemm : public testing::TestWithParam<std::tuple<Shape, bool, int64_t>> {};

TEST_P(CpuGemm, ExactIsTheDefinitionRoundedOnce) {
    const auto [s, mn_major, padding] = GetParam();
    Problem p(s.m, s.n, s.k, 1, mn_major, padding);
    run(p, Numerics::Exact);
    for (int64_t r = 0; r < s.m; ++r)
        for (int64_t c = 0; c < s.n; ++c) {
            const double sum = reference(p, r, c).sum;   // itself rounded: allow the neighbour where it is near a tie
            const double got = float_of_bf16(p.d.at(r, c));
            EXPECT_LE(std::abs(got - sum), std::abs(sum) * (0x1p-8 + 0x1p-40)) << r << ", " << c;
        }
    EXPECT_TRUE(p.d.surroundings_intact());
}

TEST_P(CpuGemm, FastAndHopperKeepTheBound) {
    const auto [s, mn_major, padding] = GetParam();
    for (const Numerics numerics : {Numerics::Fast, Numerics::Hopper}) {
        Problem p(s.m, s.n, s.k, 2, mn_major, padding);
        run(p, numerics);
        for (int64_t r = 0; r < s.m; ++r)
            for (int64_t c = 0; c < s.n; ++c) {
                const Reference x = reference(p, r, c);
                EXPECT_LE(std::abs(float_of_bf16(p.d.at(r, c)) - x.sum), error_bound(x.absolute, x.sum, Problem::blocks(s.k)));
            }
        EXPECT_TRUE(p.d.surroundings_intact());
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuGemm, testing::Combine(testing::ValuesIn(kShapes), testing::Bool(), testing::Values(0, 16)));

TEST(CpuGemm, OfZeroKIsZero) {
    for (const Numerics numerics : {Numerics::Fast, Numerics::Exact, Numerics::Hopper}) {
        Problem p(3, 16, 0, 1);
        run(p, numerics);
        for (int64_t r = 0; r < 3; ++r)
            for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(p.d.at(r, c), 0);
    }
}

/// What four chained wgmma.m64n16k32 made of random codes on an H200 (docs/numerics.md, "The experiment").
TEST(HopperModel, ReproducesTheHardwareBitForBit) {
    std::ifstream file(FINEGEMM_TEST_DIR "/backend/data/wgmma_e4m3_h200.bin", std::ios::binary);
    ASSERT_TRUE(file);
    struct Case {
        uint8_t a[64 * 128], b[16 * 128];
        uint32_t d[64 * 16];
    } c;
    int cases = 0;
    while (file.read(reinterpret_cast<char*>(&c), sizeof c)) {
        std::vector<float> ones(64, 1.0f), sums(kCpuTileRows * kCpuTileCols);
        const GemmArgs args{.a = {c.a, DType::E4M3, 64, 128, 128, 1, {}},
                            .sfa = {ones.data(), DType::F32, 64, 1, 1, 1, {}},
                            .b = {c.b, DType::E4M3, 16, 128, 128, 1, {}},
                            .sfb = {ones.data(), DType::F32, 1, 1, 1, 1, {}},
                            .d = {nullptr, DType::BF16, 64, 16, 16, 1, {}}};
        hopper_tile(CpuTile{args, 0, 64, 0, 16}, 0, 1, sums.data());
        for (int64_t r = 0; r < 64; ++r)
            for (int64_t n = 0; n < 16; ++n)
                ASSERT_EQ(float_bits(sums[static_cast<size_t>(r * kCpuTileCols + n)]), c.d[r * 16 + n]) << "case " << cases << " row " << r << " col " << n;
        ++cases;
    }
    EXPECT_EQ(cases, 6);
}

TEST(HopperModel, DropsWhatIsFarBelowTheLargest) {
    // 448 * 448 needs exponent 16; one product of 1 lies 16 below, beyond 13 bits: it is lost, in exact arithmetic it is not.
    Problem p(1, 8, 32, 1);
    for (int64_t k = 0; k < 32; ++k) p.a.at(0, k) = 0, p.b.at(0, k) = 0;
    p.a.at(0, 0) = p.b.at(0, 0) = e4m3_of_float(448);
    p.a.at(0, 1) = p.b.at(0, 1) = e4m3_of_float(1);
    p.sfa.at(0, 0) = p.sfb.at(0, 0) = 1;
    std::vector<float> sums(kCpuTileRows * kCpuTileCols);
    const GemmArgs args = p.args();
    hopper_tile(CpuTile{args, 0, 1, 0, 8}, 0, 1, sums.data());
    EXPECT_EQ(sums[0], 448.0f * 448.0f);
}

TEST(HopperModel, SplitsKInTheKernelsOrder) {
    Problem one(4, 64, 1024, 9), two(4, 64, 1024, 9);
    run(one, Numerics::Hopper, "m64n64s5w1_x2");
    run(two, Numerics::Hopper, "m64n64s5w1_splitK4_x2");
    std::vector<float> whole(kCpuTileRows * kCpuTileCols), parts = whole, part = whole;
    const GemmArgs args = one.args();
    const CpuTile tile{args, 0, 4, 0, 64};
    hopper_tile(tile, 0, 8, whole.data());
    hopper_tile(tile, 0, 2, parts.data());
    for (int64_t first = 2; first < 8; first += 2) {
        hopper_tile(tile, first, first + 2, part.data());
        for (size_t i = 0; i < parts.size(); ++i) parts[i] += part[i];
    }
    bool differ = false;
    for (int64_t r = 0; r < 4; ++r)
        for (int64_t c = 0; c < 64; ++c) {
            const auto i = static_cast<size_t>(r * kCpuTileCols + c);
            EXPECT_EQ(one.d.at(r, c), bf16_of_float(whole[i]));
            EXPECT_EQ(two.d.at(r, c), bf16_of_float(parts[i]));
            differ |= whole[i] != parts[i];
        }
    EXPECT_TRUE(differ) << "the order matters, or this test shows nothing";
}

TEST(HopperModel, MakesNanOfNanAndNothingElse) {
    Problem p(3, 16, 256, 4);
    p.a.at(1, 200) = 0x7f;
    p.b.at(5, 3) = 0xff;
    run(p, Numerics::Hopper);
    for (int64_t r = 0; r < 3; ++r)
        for (int64_t c = 0; c < 16; ++c) {
            if (r == 1 || c == 5) EXPECT_EQ(p.d.at(r, c), 0x7fff);
            else EXPECT_FALSE(std::isnan(float_of_bf16(p.d.at(r, c))));
        }
}

TEST(CheckScales, NamesTheFirstBadOne) {
    const auto message = [](float bad) -> std::string {
        Problem p(4, 256, 256, 1, true);
        p.sfa.at(1, 2) = bad;   // MN-major: row 2, block 1
        try {
            make_cpu_backend({})->check_scales(p.args(), {});
        } catch (const Error& e) {
            EXPECT_EQ(e.code(), Errc::InvalidArgument);
            return e.what();
        }
        return "";
    };
    EXPECT_TRUE(message(NAN).starts_with("sfa[2, 1] is nan: ")) << message(NAN);
    EXPECT_TRUE(message(-1).starts_with("sfa[2, 1] is -1: ")) << message(-1);
    EXPECT_TRUE(message(std::numeric_limits<float>::infinity()).starts_with("sfa[2, 1] is inf: "));
    EXPECT_EQ(message(0), "");
}

TEST(ThreadPool, CallsEachIndexOnceAlsoWhenCalledFromManyThreadsAndFromItself) {
    ThreadPool pool(4);
    std::vector<std::thread> callers;
    for (int t = 0; t < 4; ++t)
        callers.emplace_back([&] {
            std::vector<std::atomic<int>> seen(200);
            pool.parallel_for(20, [&](int64_t i) { pool.parallel_for(10, [&](int64_t j) { ++seen[static_cast<size_t>(i * 10 + j)]; }); });
            for (const auto& s : seen) EXPECT_EQ(s, 1);
        });
    for (auto& c : callers) c.join();
}

TEST(ThreadPool, ThrowsTheBodysException) {
    ThreadPool pool(3);
    EXPECT_THROW(pool.parallel_for(100, [](int64_t i) { if (i == 37) throw std::runtime_error("37"); }), std::runtime_error);
    int64_t sum = 0;
    std::mutex mutex;
    pool.parallel_for(10, [&](int64_t i) { const std::scoped_lock lock(mutex); sum += i; });
    EXPECT_EQ(sum, 45) << "and works on";
}

}  // namespace
}  // namespace finegemm
