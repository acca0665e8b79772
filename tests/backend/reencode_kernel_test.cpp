// The text of the kernels that give MXFP8 scales for 128 of K, run on the host. Layer tests.
#include <gtest/gtest.h>

#include <set>

#include <finegemm/device/reencode.cuh>

#include "ops/quantize/cpu.h"
#include "ops/quantize/hopper.h"
#include "support/reencode.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::ReencodeProblem;

template <bool Blocks>
void run_config(const ReencodeLaunch& launch, uint32_t grid, uint32_t seed) {
    constexpr ReencodeConfig kConfig{Blocks};
    const auto kernel = [&] { device::reencode<kConfig>(launch.params); };
    if (launch.config == kConfig) host_kernel::launch(grid, kConfig.threads(), kernel, seed);
}
void run_kernel(const ReencodeLaunch& launch, uint32_t grid, uint32_t seed) {
    run_config<false>(launch, grid, seed);
    run_config<true>(launch, grid, seed);
}

/// `ctas`: no more of them; each then has tasks one behind the other.
void expect_bits_of_the_cpu(ReencodeProblem& p, uint32_t seed, uint32_t ctas = UINT32_MAX) {
    p.run([&](const ReencodeCall& call) {
        const ReencodeLaunch launch = launch_of(call);
        run_kernel(launch, std::min(launch.grid, ctas), seed);
    });
    ASSERT_TRUE(p.surroundings_intact()) << p.name();
    const std::vector<uint8_t> by_kernel = p.written();
    ThreadPool pool(1);
    p.run([&](const ReencodeCall& call) { run_on_cpu(call, pool); });
    ASSERT_TRUE(p.surroundings_intact()) << p.name();
    ASSERT_TRUE(by_kernel == p.written()) << p.name();
}

TEST(ReencodeKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    std::mt19937 random(41);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        ReencodeProblem p = test::random_reencode(random);
        expect_bits_of_the_cpu(p, i, random() % 2 == 0 ? UINT32_MAX : 1 + random() % 4);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(ReencodeKernel, GivesTheSameBitsWhicheverWarpIsFirst) {
    for (const bool blocks : {false, true})
        for (uint32_t seed = 0; seed < test::tried(10); ++seed) {
            ReencodeProblem p({.count = 2, .m = 150, .k = 400, .blocks = blocks, .padding = 1, .spread = 20}, 5);
            expect_bits_of_the_cpu(p, seed, 3);
            if (testing::Test::HasFatalFailure()) return;
        }
}

/// Each code with each exponent, beside one that decides about the scale.
TEST(ReencodeKernel, MovesEveryCodeOfEveryExponent) {
    for (const bool blocks : {false, true}) {
        ReencodeProblem p({.count = 1, .m = 256, .k = 512, .blocks = blocks}, 6);
        for (int64_t r = 0; r < 256; ++r)
            for (int64_t c = 0; c < 512; ++c) {
                const bool decides = c % 128 >= 96;
                p.codes.at(0, r, c) = static_cast<uint8_t>(decides ? 0x38 : c / 128 * 96 + c % 128 + 128 * (r % 2));
                p.set_exponent(0, r, c, decides ? (r + 3) / 4 * 4 % 256 : r);
            }
        expect_bits_of_the_cpu(p, 1);
    }
}

/// Each element is that of one thread of one task, in vectors of 16.
TEST(ReencodeTasks, CoverEachVectorOnce) {
    for (const bool blocks : {false, true})
        for (const auto& [m, k] : {std::pair{1u, 16u}, {129u, 144u}, {17u, 1040u}, {256u, 1024u}}) {
            const ReencodeConfig c{blocks};
            std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;
            for (uint64_t i = 0; i < reencode_tasks(c, m, k, 2); ++i)
                for (uint32_t thread = 0; thread < c.threads(); ++thread)
                    for (uint32_t u = 0; u < c.unroll(); ++u) {
                        const auto [matrix, first] = reencode_task(c, m, k, i);
                        const RowCol mine = c.origin(thread);
                        const uint32_t row = first.row + mine.row + u * c.warps(), col = first.col + mine.col;
                        if (row >= m || col >= k) continue;
                        EXPECT_TRUE(seen.insert({matrix, row, col}).second);
                    }
            EXPECT_EQ(seen.size(), 2u * m * k / 16);
        }
}

}  // namespace
}  // namespace finegemm
