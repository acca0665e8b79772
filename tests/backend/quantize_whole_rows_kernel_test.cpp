// Quantisation with one scale for each row, by the text of the kernels, run on the host, and by the CPU. Layer tests.
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

/// A matrix with columns that belong to nobody beside it, a row of nothing that is finite, and what is written.
struct RowsProblem {
    int64_t m, k;
    bool power_of_two;
    Input x;
    Buffer<uint8_t> q;
    Buffer<float> scales;  // [m, 1] with others between them

    RowsProblem(DType dtype, DType codes, int64_t m_, int64_t k_, bool power_of_two_, uint32_t seed)
        : m(m_),
          k(k_),
          power_of_two(power_of_two_),
          x(dtype, m, k, 16),
          q(codes, m, k, 32),
          scales(DType::F32, m, 1, 2) {
        test::fill(x, m, k, seed);
        for (int64_t c = 0; c < k; ++c) x.set(m / 2, c, c % 3 == 0 ? test::kNaN : -test::kInfinity);
    }
    template <typename Run>
    void run(const Run& run_call) {
        for (int64_t r = 0; r < m; ++r) std::memset(&q.at(r, 0), 0x5a, static_cast<size_t>(k)), scales.at(r, 0) = -1;
        const QuantizeOptions options{.power_of_two_scales = power_of_two};
        run_call(QuantizeCall{ScaleShape::WholeRows, x.view(), q.view(), scales.view(), options});
    }
    /// What is written is the definition, element by element.
    void expect_right() {
        const QuantizeCodes codes = codes_of(q.view());
        for (int64_t r = 0; r < m; ++r) {
            uint32_t largest = 0;
            for (int64_t c = 0; c < k; ++c) largest = std::max(largest, finite_magnitude(x.at(r, c)));
            const float scale = block_scale(largest, power_of_two, codes), inverse = inverse_scale(scale);
            ASSERT_EQ(scales.at(r, 0), scale) << r;
            for (int64_t c = 0; c < k; ++c) {
                ASSERT_EQ(q.at(r, c), quantize_element(x.at(r, c), inverse, codes)) << r << ", " << c;
                ASSERT_TRUE(codes != QuantizeCodes::I8 || q.at(r, c) != 0x80) << "-128";
            }
        }
        ASSERT_TRUE(q.surroundings_intact() && scales.surroundings_intact());
    }
};

/// Rows of one warp, of several, of all of a CTA, and longer ones, which are loaded in parts.
RowsProblem random_rows(std::mt19937& random) {
    const DType dtypes[] = {DType::F32, DType::F16, DType::BF16}, codes[] = {DType::E4M3, DType::E5M2, DType::I8};
    const int64_t most[] = {16, 64, 128, 300, 1024, 1100, 2100};
    const auto k = 16 * static_cast<int64_t>(1 + random() % static_cast<uint64_t>(most[random() % 7]));
    return {dtypes[random() % 3],
            codes[random() % 3],
            static_cast<int64_t>(1 + random() % (k > 4096 ? 3 : 40)),
            k,
            random() % 2 == 0,
            static_cast<uint32_t>(random())};
}

template <QuantizeInput Input, QuantizeCodes Codes>
void run_config(const QuantizeLaunch& launch, uint32_t seed) {
    constexpr QuantizeConfig kConfig{Input, false, Codes, true};
    if (launch.config == kConfig)
        host_kernel::launch(launch.grid, kConfig.threads(), [&] { device::quantize<kConfig>(launch.params); }, seed);
}
template <QuantizeInput Input>
void run_input(const QuantizeLaunch& launch, uint32_t seed) {
    run_config<Input, QuantizeCodes::E4M3>(launch, seed);
    run_config<Input, QuantizeCodes::E5M2>(launch, seed);
    run_config<Input, QuantizeCodes::I8>(launch, seed);
}

TEST(CpuQuantizeWholeRows, IsTheDefinition) {
    std::mt19937 random(43);
    ThreadPool pool(2);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        RowsProblem p = random_rows(random);
        p.run([&](const QuantizeCall& call) { run_on_cpu(call, pool); });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(QuantizeWholeRowsKernel, IsTheDefinition) {
    std::mt19937 random(44);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        RowsProblem p = random_rows(random);
        p.run([&](const QuantizeCall& call) {
            QuantizeLaunch launch = launch_of(call);
            if (i % 3 == 0) launch.grid = std::min(launch.grid, 2u);  // and walks over the other rows
            run_input<QuantizeInput::F32>(launch, i);
            run_input<QuantizeInput::F16>(launch, i);
            run_input<QuantizeInput::BF16>(launch, i);
        });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(QuantizeShapes, ScalesOfOneColumnAreForWholeRows) {
    const auto shape = [](int64_t cols, int64_t of_scales) {
        return shape_of_row_scales({nullptr, DType::F32, 4, cols, cols, 1, {}},
                                   {nullptr, DType::F32, 4, of_scales, of_scales, 1, {}});
    };
    EXPECT_EQ(shape(256, 1), ScaleShape::WholeRows);
    EXPECT_EQ(shape(256, 2), ScaleShape::Rows);
    EXPECT_EQ(shape(128, 1), ScaleShape::Rows) << "it is the same, by the kernel of blocks";
}

}  // namespace
}  // namespace finegemm
