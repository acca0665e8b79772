// Kernels of products that report the rows that they have stored, and of the activation that awaits these, run on the
// host: nothing is reported before it is there, or read before it is reported, and the bits of the CPU. Layer tests.
#include <gtest/gtest.h>

#include <numeric>

#include <finegemm/device/swiglu_quantize.cuh>

#include "ops/swiglu/cpu.h"
#include "ops/swiglu/hopper.h"
#include "support/gemm_kernel.h"
#include "support/grouped.h"
#include "support/quantize.h"
#include "support/random.h"
#include "support/random_cases.h"

namespace finegemm {
namespace {

constexpr uint16_t kNotThere = 0xffff;

class ReportedRowsKernel : public ::testing::Test {
protected:
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    std::shared_ptr<const cuda::Driver> driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    ThreadPool pool{1};

    void TearDown() override { host_kernel::reported = nullptr, host_kernel::before_polling = nullptr; }

    template <GemmConfig C>
    void compare(uint32_t seed) {
        test::Random random(seed);
        std::vector<int32_t> numbers{static_cast<int32_t>(random.any(0, 5))};
        const auto groups = random.any(1, 4);
        for (int64_t g = 0; g < groups; ++g)
            numbers.push_back(numbers.back() +
                              (random.one_in(4) ? 0 : static_cast<int32_t>(random.any(1, 2 * C.tile_m))));
        const test::Grouping grouping{
            .form = GroupForm::Offsets, .groups = groups, .m = numbers.back() + random.any(1, 9), .numbers = numbers};
        const int64_t k = kScaleBlock * static_cast<int64_t>(C.stages + random.any(1, 3));
        test::GroupedProblem p(grouping, 8 * (C.cluster > 1 ? random.any(17, 32) : random.any(1, 40)), k, seed);
        for (int64_t r = 0; r < p.rows(); ++r)
            for (int64_t c = 0; c < p.n; ++c) p.d.at(r, c) = kNotThere;
        std::vector<uint32_t> stored(static_cast<size_t>(groups));
        const auto pieces_there = [&](size_t g) {
            int64_t elements = 0;
            for (int64_t r = numbers[g]; r < numbers[g + 1]; ++r)
                for (int64_t c = 0; c < p.n; ++c) elements += p.d.at(r, c) != kNotThere ? 1 : 0;
            return elements / 8;
        };
        host_kernel::reported = [&](const uint32_t* word) {
            const auto g = static_cast<size_t>(word - stored.data());
            if (pieces_there(g) < *word) host_kernel::machine->fail("rows are reported that are not there");
        };
        const GemmOptions options{.numerics = Numerics::Hopper};
        Call call(p.args(), options);
        call.stored = stored.data();
        ASSERT_EQ(variant_for(call, plan::without_variant(C)), C);
        test::run_kernel<C>(*driver, call, seed);
        if (HasFatalFailure()) return;
        for (size_t g = 0; g < stored.size(); ++g) ASSERT_EQ(stored[g], (numbers[g + 1] - numbers[g]) * p.n / 8) << g;
        std::vector<uint16_t> by_kernel;
        for (int64_t r = 0; r < p.rows(); ++r) by_kernel.insert(by_kernel.end(), &p.d.at(r, 0), &p.d.at(r, 0) + p.n);
        cpu_gemm(call, pool);
        for (int64_t r = numbers.front(); r < numbers.back(); ++r)
            for (int64_t c = 0; c < p.n; ++c)
                ASSERT_EQ(by_kernel[static_cast<size_t>(r * p.n + c)], p.d.at(r, c)) << seed << ": " << r << ", " << c;
    }
};

constexpr GemmConfig reporting(uint32_t tile_m, uint32_t tile_n, uint32_t stages, uint32_t warpgroups,
                               uint32_t cluster = 1) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .stages = stages,
            .math_warpgroups = warpgroups,
            .cluster = cluster,
            .cluster_use = cluster > 1 ? ClusterUse::ShareA : ClusterUse::None,
            .grouping = Grouping::Rows,
            .reports_rows = true};
}

TEST_F(ReportedRowsKernel, ReportsWhatIsThereAndHasTheBitsOfTheCpu) {
    for (uint32_t seed = 1; seed <= test::random_cases(4); ++seed) {
        compare<reporting(128, 192, 5, 2)>(5 * seed);
        compare<reporting(128, 96, 7, 2)>(5 * seed + 1);
        compare<reporting(192, 128, 4, 3)>(5 * seed + 2);
        compare<reporting(64, 128, 8, 1)>(5 * seed + 3);
        compare<reporting(256, 128, 4, 2, 2)>(5 * seed + 4);
        if (HasFatalFailure()) return;
    }
}

TEST_F(ReportedRowsKernel, AreAwaitedByTheActivation) {
    for (uint32_t seed = 1; seed <= test::random_cases(20); ++seed) {
        test::Random random(seed);
        const auto groups = random.any(1, 40), pairs = 16 * random.any(1, 40);
        std::vector<int32_t> offsets{0};
        for (int64_t g = 0; g < groups; ++g)
            offsets.push_back(offsets.back() + (random.one_in(3) ? 0 : static_cast<int32_t>(random.any(1, 9))));
        const int64_t rows = offsets.back() + random.any(1, 5);
        test::Input x(DType::BF16, rows, 2 * pairs, 16);
        test::fill(x, rows, 2 * pairs, seed);
        test::Buffer<uint8_t> q(DType::E4M3, rows, pairs, 32), wanted(DType::E4M3, rows, pairs, 32);
        test::Buffer<float> scales(DType::F32, rows, (pairs + 127) / 128, 3),
            wanted_scales(DType::F32, rows, (pairs + 127) / 128, 3);
        SwigluOptions options{.to_bf16 = true};
        options.num_sms = random.one_in(2) ? 1 : 0;
        SwigluCall call{{.x = {x.view()},
                         .q = {wanted.view()},
                         .scales = {wanted_scales.view()},
                         .groups = {.form = GroupForm::Offsets, .data = offsets.data(), .size = groups + 1}},
                        options};
        run_on_cpu(call, pool);

        // The kernel before this one stores one group after the other, in any order, while this one polls.
        auto* const memory = static_cast<uint8_t*>(const_cast<void*>(x.view().data));
        const auto row_bytes = static_cast<size_t>(x.view().row_stride * 2);
        const std::vector<uint8_t> there(memory, memory + static_cast<size_t>(rows) * row_bytes);
        std::memset(memory, 0xff, there.size());
        std::vector<uint32_t> stored(static_cast<size_t>(groups));
        std::vector<size_t> left(stored.size());
        std::iota(left.begin(), left.end(), size_t{0});
        host_kernel::before_polling = [&] {
            if (left.empty() || !random.one_in(4)) return;
            std::swap(left[static_cast<size_t>(random.any(0, static_cast<int64_t>(left.size()) - 1))], left.back());
            const size_t g = left.back(), begin = static_cast<size_t>(offsets[g]) * row_bytes;
            const auto of_group = static_cast<size_t>(offsets[g + 1] - offsets[g]);
            left.pop_back();
            std::memcpy(memory + begin, there.data() + begin, of_group * row_bytes);
            stored[g] = static_cast<uint32_t>(of_group * static_cast<size_t>(pairs) / 4);
        };
        call.q = {q.view()}, call.scales = {scales.view()}, call.few = true, call.stored = stored.data();
        const SwigluLaunch launch = launch_of(call, 2);
        constexpr SwigluConfig kAwaits{QuantizeInput::BF16, true, false, true};
        ASSERT_TRUE(launch.config == kAwaits);
        host_kernel::launch(
            launch.grid, kAwaits.threads(), [&] { device::swiglu_quantize<kAwaits>(launch.params); }, seed);
        for (int64_t r = 0; r < offsets.back(); ++r) {
            for (int64_t c = 0; c < pairs; ++c)
                ASSERT_EQ(q.at(r, c), wanted.at(r, c)) << seed << ": " << r << ", " << c;
            for (int64_t b = 0; b < (pairs + 127) / 128; ++b) ASSERT_EQ(scales.at(r, b), wanted_scales.at(r, b)) << r;
        }
        EXPECT_TRUE(q.surroundings_intact() && scales.surroundings_intact());
    }
}

}  // namespace
}  // namespace finegemm
