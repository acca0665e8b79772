// Quantisation of square blocks with the codes transposed: on the CPU, and by the text of the kernels, run on the host.
// Layer tests.
#include <gtest/gtest.h>

#include <finegemm/device/quantize.cuh>

#include "ops/quantize/cpu.h"
#include "ops/quantize/hopper.h"
#include "support/quantize.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::Buffer;
using test::Input;

/// A stack of weights with rows that belong to nobody between its matrices, and all that is written.
struct WeightsProblem {
    int64_t g, n, k, gap;
    bool transposes, power_of_two;
    Input x;
    Buffer<uint8_t> q, transposed;
    Buffer<float> scales;

    WeightsProblem(DType dtype, int64_t g_, int64_t n_, int64_t k_, int64_t gap_, bool transposes_, bool power_of_two_,
                   uint32_t seed)
        : g(g_),
          n(n_),
          k(k_),
          gap(gap_),
          transposes(transposes_),
          power_of_two(power_of_two_),
          x(dtype, g * (n + gap), k, 16),
          q(DType::E4M3, g * (n + gap), k, 32),
          transposed(DType::E4M3, g * (k + gap), n, 48),
          scales(DType::F32, g * (blocks(n) + gap), blocks(k), 3) {
        test::fill(x, g * (n + gap), k, seed);
        // A block of nothing that is finite.
        for (int64_t r = 0; r < std::min<int64_t>(n, 128); ++r)
            for (int64_t c = 0; c < std::min<int64_t>(k, 128); ++c)
                x.set(r, c, c % 3 == 0 ? test::kNaN : -test::kInfinity);
    }
    static int64_t blocks(int64_t extent) { return (extent + 127) / 128; }

    template <typename Run>
    void run(const Run& run_call) {
        clear(q), clear(transposed), clear(scales);
        QuantizeWeightsArgs args{.x = stack<ConstStack>(x.view(), n),
                                 .q = stack<Stack>(q.view(), n),
                                 .scales = stack<Stack>(scales.view(), blocks(n))};
        if (transposes) args.transposed = stack<Stack>(transposed.view(), k);
        const QuantizeOptions options{.power_of_two_scales = power_of_two};
        run_call(QuantizeCall(args, options));
    }
    /// Each matrix is what quantize_blocks makes of it alone, its codes transposed, and nothing else is written.
    void expect_right() {
        ThreadPool pool(1);
        const QuantizeOptions options{.power_of_two_scales = power_of_two};
        for (int64_t i = 0; i < g; ++i) {
            Buffer<uint8_t> codes(DType::E4M3, n, k);
            Buffer<float> wanted(DType::F32, blocks(n), blocks(k));
            const ConstMatrix one = matrix(x.view(), i, n);
            run_on_cpu(QuantizeCall(ScaleShape::Blocks, one, codes.view(), wanted.view(), options), pool);
            for (int64_t r = 0; r < n; ++r)
                for (int64_t c = 0; c < k; ++c) {
                    ASSERT_EQ(q.at(i * (n + gap) + r, c), codes.at(r, c)) << i << ", " << r << ", " << c;
                    ASSERT_EQ(transposed.at(i * (k + gap) + c, r), transposes ? codes.at(r, c) : kUntouched);
                }
            for (int64_t r = 0; r < blocks(n); ++r)
                for (int64_t c = 0; c < blocks(k); ++c)
                    ASSERT_EQ(scales.at(i * (blocks(n) + gap) + r, c), wanted.at(r, c)) << i << ", " << r << ", " << c;
            for (int64_t r = 0; r < gap; ++r) {
                ASSERT_EQ(q.at(i * (n + gap) + n + r, 0), kUntouched);
                ASSERT_EQ(transposed.at(i * (k + gap) + k + r, 0), kUntouched);
            }
        }
        ASSERT_TRUE(q.surroundings_intact() && transposed.surroundings_intact() && scales.surroundings_intact());
    }

private:
    static constexpr uint8_t kUntouched = 0x5a;
    ConstMatrix matrix(ConstMatrix all, int64_t i, int64_t rows) const {
        all.data = static_cast<const uint8_t*>(all.data) + i * (rows + gap) * all.row_stride * size_of(all.dtype);
        all.rows = rows;
        return all;
    }
    template <typename AnyStack, typename AnyMatrix>
    AnyStack stack(AnyMatrix all, int64_t rows) const {
        all.rows = rows;
        return {all, g, (rows + gap) * all.row_stride};
    }
    template <typename T>
    static void clear(Buffer<T>& b) {
        for (int64_t r = 0; r < b.view().rows; ++r)
            std::memset(&b.at(r, 0), kUntouched, static_cast<size_t>(b.view().cols) * sizeof(T));
    }
};

WeightsProblem random_weights(std::mt19937& random) {
    const DType dtypes[] = {DType::F32, DType::F16, DType::BF16};
    const auto some = [&](uint32_t most) { return static_cast<int64_t>(1 + random() % most); };
    const bool transposes = random() % 4 != 0;
    const int64_t n = transposes ? 16 * some(18) : some(300);
    return {dtypes[random() % 3],           some(3), n, 16 * some(18), some(3) - 1, transposes, random() % 2 == 0,
            static_cast<uint32_t>(random())};
}

template <QuantizeInput Input>
void run_input(const QuantizeLaunch& launch, uint32_t seed) {
    constexpr QuantizeConfig kConfig{Input, true};
    if (launch.config == kConfig)
        host_kernel::launch(launch.grid, kConfig.threads(), [&] { device::quantize<kConfig>(launch.params); }, seed);
}
void run_kernel(const QuantizeLaunch& launch, uint32_t seed) {
    run_input<QuantizeInput::F32>(launch, seed);
    run_input<QuantizeInput::F16>(launch, seed);
    run_input<QuantizeInput::BF16>(launch, seed);
}

TEST(CpuQuantizeWeights, IsQuantizeBlocksOfEachMatrixWithItsCodesTransposed) {
    std::mt19937 random(41);
    ThreadPool pool(2);
    for (uint32_t i = 0; i < test::tried(20); ++i) {
        WeightsProblem p = random_weights(random);
        p.run([&](const QuantizeCall& call) { run_on_cpu(call, pool); });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(QuantizeWeightsKernel, IsQuantizeBlocksOfEachMatrixWithItsCodesTransposed) {
    std::mt19937 random(42);
    for (uint32_t i = 0; i < test::tried(30); ++i) {
        WeightsProblem p = random_weights(random);
        p.run([&](const QuantizeCall& call) {
            QuantizeLaunch launch = launch_of(call);
            if (i % 3 == 0) launch.grid = std::min(launch.grid, 2u);  // and walks over the other blocks
            run_kernel(launch, i);
        });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
