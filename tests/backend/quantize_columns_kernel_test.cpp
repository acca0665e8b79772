// The text of the kernels that quantise columns, run on the host. Layer tests.
#include <gtest/gtest.h>

#include <set>

#include <finegemm/device/quantize_columns.cuh>

#include "ops/quantize/cpu.h"
#include "ops/quantize/hopper.h"
#include "support/quantize.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::ColumnsProblem;

template <QuantizeInput Input, QuantizeCodes Codes = QuantizeCodes::E4M3>
void run_input(const QuantizeColumnsLaunch& launch, uint32_t seed) {
    constexpr QuantizeColumnsConfig kConfig{Input, Codes};
    if (launch.config == kConfig)
        host_kernel::launch(
            launch.grid, kConfig.threads(), [&] { device::quantize_columns<kConfig>(launch.params); }, seed);
}
void run_kernel(const QuantizeColumnsLaunch& launch, uint32_t seed = 1) {
    run_input<QuantizeInput::F32>(launch, seed);
    run_input<QuantizeInput::F16>(launch, seed);
    run_input<QuantizeInput::BF16>(launch, seed);
    run_input<QuantizeInput::BF16, QuantizeCodes::E5M2>(launch, seed);
}

void expect_bits_of_the_cpu(ColumnsProblem& p, const std::function<void(const QuantizeColumnsCall&)>& kernel) {
    p.run(kernel);
    ASSERT_TRUE(p.surroundings_intact()) << p.name();
    const std::vector<uint8_t> by_kernel = p.written();
    ThreadPool pool(1);
    p.run([&](const QuantizeColumnsCall& call) { run_on_cpu(call, pool); });
    ASSERT_TRUE(by_kernel == p.written()) << p.name();
}

TEST(QuantizeColumnsKernel, GivesTheBitsOfTheCpuAndWritesNothingElse) {
    std::mt19937 random(31);
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        ColumnsProblem p = test::random_columns(random);
        expect_bits_of_the_cpu(p, [&](const QuantizeColumnsCall& call) { run_kernel(launch_of(call), i); });
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(QuantizeColumnsKernel, WritesE5m2) {
    for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{}, {0, 3, 3, 90, 150}}) {
        ColumnsProblem p(DType::BF16, 150, 144, offsets, true, false, 5, 0, DType::E5M2);
        expect_bits_of_the_cpu(p, [](const QuantizeColumnsCall& call) { run_kernel(launch_of(call)); });
    }
}

/// More groups than q has room for, too: what is written is as long as q.
TEST(QuantizeColumnsKernel, FindsTheRowsOfMoreGroupsThanAWarpLoadsAtOnce) {
    std::mt19937 random(33);
    for (const DType dtype : {DType::F32, DType::BF16}) {
        std::vector<int32_t> offsets = test::random_offsets(random, 90, 1100);
        std::fill_n(offsets.begin(), 600, 0);
        ColumnsProblem p(dtype, 90, 16, offsets, false, false, 4, 512 - ColumnsProblem::columns(90, offsets));
        expect_bits_of_the_cpu(p, [](const QuantizeColumnsCall& call) { run_kernel(launch_of(call)); });
    }
}

/// The sanitizers watch the loads.
TEST(QuantizeColumnsKernel, NumbersThatBreakTheRulesStayWithinTheMatrices) {
    std::mt19937 random(32);
    for (int i = 0; i < 8; ++i) {
        ColumnsProblem p(DType::F16, 200, 144, {0, 100, 150, 200}, true, false, 7);
        for (int32_t& offset : p.offsets) offset = static_cast<int32_t>(random());
        if (i == 0) p.offsets = {0, 200, 0, 200};  // more rows than there are
        p.run([&](const QuantizeColumnsCall& call) { run_kernel(launch_of(call)); });
        EXPECT_TRUE(p.surroundings_intact());
        for (size_t g = 0; g < p.offsets.size(); ++g) EXPECT_LE(p.begins[1 + g], p.q.view().cols);
    }
}

constexpr QuantizeConfig kConfigs[] = {
    {QuantizeInput::F32, true}, {QuantizeInput::F16, true}, {QuantizeInput::BF16, true}};

TEST(QuantizeColumnsTile, EveryPieceHasAPlaceOfItsOwnAndTwoMakeSixteenBytes) {
    for (const QuantizeConfig& c : kConfigs) {
        std::set<uint32_t> places;
        for (uint32_t col = 0; col < 128; ++col)
            for (uint32_t piece = 0; piece < 16; piece += 2) {
                const uint32_t left = c.place(col, piece), right = c.place(col, piece + 1);
                places.insert({left, right});
                EXPECT_EQ(left / 16, right / 16);
                EXPECT_LT(left / 16 * 16, 128u * 128);
            }
        EXPECT_EQ(places.size(), 128u * 16);
    }
}

/// Shared memory has 32 banks of 4 bytes; lanes are served in groups whose words fill them once.
TEST(QuantizeColumnsTile, LanesThatAreServedTogetherMeetNoBankTwice) {
    for (const QuantizeConfig& c : kConfigs) {
        for (uint32_t half = 0; half < c.threads(); half += 16)  // stores of 8 bytes
            for (uint32_t i = 0; i < c.vector(); ++i) {
                std::set<uint32_t> banks;
                for (uint32_t thread = half; thread < half + 16; ++thread) {
                    const RowCol at = c.origin(thread);
                    banks.insert(c.place(at.col + i, at.row / c.kTileRows) / 8 % 16);
                }
                EXPECT_EQ(banks.size(), 16u) << half << ", " << i;
            }
        for (uint32_t first = 0; first < 1024; first += 8) {  // loads of 16 bytes
            std::set<uint32_t> banks;
            for (uint32_t i = first; i < first + 8; ++i) banks.insert(c.place(i / 8, i % 8 * 2) / 16 % 8);
            EXPECT_EQ(banks.size(), 8u) << first;
        }
    }
}

}  // namespace
}  // namespace finegemm
