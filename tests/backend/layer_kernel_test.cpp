// The text of the kernel for a layer of experts, run on the host: the bits are those of the CPU's steps, what surrounds
// results stays as it was, and so do counters. Layer tests.
#include <gtest/gtest.h>

#define FG_WGMMA_N 16
#define FG_WGMMA_TOO 32
#include <finegemm/device/layer/layer.cuh>

#include "engine/cpu.h"
#include "ops/moe/one_launch.h"
#include "support/mock_driver.h"
#include "support/random.h"
#include "support/random_cases.h"
#include "support/routing.h"

namespace finegemm {
namespace {

using test::Random;

/// A random layer of few tokens, some of whose ids are no experts' here.
struct LayerCase {
    int64_t tokens, k, hidden, pairs, experts;
    std::vector<uint16_t> x;
    std::vector<int32_t> ids;
    std::vector<float> weights, gate_up_scales, down_scales;
    std::vector<uint8_t> gate_up, down;
    MoeOptions options{.numerics = Numerics::Hopper};

    explicit LayerCase(Random& r)
        : tokens(r.one_in(3) ? 1 : r.any(1, 16)),
          k(r.any(1, std::min<int64_t>(64 / tokens, 8))),
          hidden(512 * r.any(1, 2)),
          pairs(512),
          experts(r.any(1, 6)) {
        for (int64_t i = 0; i < tokens * hidden; ++i) x.push_back(static_cast<uint16_t>(float_bits(r.normal(1)) >> 16));
        for (int64_t i = 0; i < tokens * k; ++i) ids.push_back(static_cast<int32_t>(r.any(2, experts + 3)));
        for (int64_t i = 0; i < tokens * k; ++i) weights.push_back(r.normal(1));
        const auto codes = [&](int64_t count) {
            std::vector<uint8_t> all(static_cast<size_t>(count + 16));
            for (uint8_t& code : all) code = static_cast<uint8_t>(r.any(0, 255) & 0xb7);
            return all;
        };
        const auto scales = [&](int64_t count) {
            std::vector<float> all(static_cast<size_t>(count + 4));
            for (float& scale : all) scale = 0.01f + 0.001f * static_cast<float>(r.any(0, 9));
            return all;
        };
        gate_up = codes(experts * 2 * pairs * hidden), down = codes(experts * hidden * pairs);
        gate_up_scales = scales(experts * 2 * pairs / 128 * hidden / 128);
        down_scales = scales(experts * hidden / 128 * pairs / 128);
        if (r.one_in(2)) options.gate_limit = 0.7f, options.gate_alpha = 1.702f, options.up_offset = 1;
        options.power_of_two_scales = r.one_in(2);
        if (r.one_in(3)) x[static_cast<size_t>(r.any(0, tokens - 1) * hidden + 5)] = 0x7fc0;
    }

    MoeArgs args(uint16_t* out) const {
        const auto of = [&](const auto& all) {
            using T = std::remove_cvref_t<decltype(all[0])>;
            const auto at = reinterpret_cast<uintptr_t>(all.data());
            return reinterpret_cast<const T*>((at + 15) / 16 * 16);
        };
        const auto stack = [&](const auto* data, DType type, int64_t rows, int64_t cols) {
            return ConstStack{{data, type, rows, cols, cols}, experts, rows * cols};
        };
        return {.x = {x.data(), DType::BF16, tokens, hidden, hidden},
                .ids = {ids.data(), DType::I32, tokens, k, k},
                .weights = {weights.data(), DType::F32, tokens, k, k},
                .gate_up = stack(of(gate_up), DType::E4M3, 2 * pairs, hidden),
                .gate_up_scales = stack(of(gate_up_scales), DType::F32, 2 * pairs / 128, hidden / 128),
                .down = stack(of(down), DType::E4M3, hidden, pairs),
                .down_scales = stack(of(down_scales), DType::F32, hidden / 128, pairs / 128),
                .first = 3,
                .out = {out, DType::BF16, tokens, hidden, hidden}};
    }
};

template <typename T>
bool intact(test::Guarded<T>& x, int64_t elements) {
    for (const T* at = x.all.data(); at < x.all.data() + x.all.size(); ++at)
        if ((at < x.data() || at >= x.data() + elements) && *at != x.guard) return false;
    return true;
}

void run_kernel(const LayerLaunch& launch, uint32_t* counters, uint32_t seed, uint32_t ctas) {
    const auto run = [&](const auto& kernel) {
        host_kernel::launch(ctas, LayerConfig::threads(), kernel, seed, seed % 2 == 0 ? ctas : 1);
    };
    if (launch.config.rows == 16) run([&] { device::expert_layer<LayerConfig{16}>(launch.params, counters); });
    else run([&] { device::expert_layer<LayerConfig{32}>(launch.params, counters); });
}

TEST(LayerKernelText, RandomLayersHaveTheBitsOfTheCpusSteps) {
    mock::Driver mock{FINEGEMM_MOCK_DRIVER};
    const auto driver = cuda::Driver::open(FINEGEMM_MOCK_DRIVER);
    const auto cpu = make_cpu_backend({});
    std::vector<uint32_t> counters(2 * LayerCounters::kWords);
    for (uint32_t seed = 1; seed <= test::random_cases(10); ++seed) {
        Random random(seed);
        const LayerCase c(random);
        test::Guarded<uint16_t> found(c.tokens * c.hidden, 0xbeef), wanted(c.tokens * c.hidden, 0xbeef);
        cpu->run(MoeCall{c.args(wanted.data()), c.options});
        const MoeCall call{c.args(found.data()), c.options};
        ASSERT_TRUE(can_be_one_launch(call));
        test::Guarded<uint8_t> memory(layer_memory_of(call.shape()).bytes, 0xff);
        const LayerLaunch launch = one_launch_of(call, memory.data(), seed % 2, *driver, 2);
        try {
            run_kernel(launch, counters.data(), seed, 1 + seed % 3);
        } catch (const std::exception& error) {
            FAIL() << seed << ": " << error.what();
        }
        ASSERT_TRUE(intact(found, c.tokens * c.hidden) && intact(memory, layer_memory_of(call.shape()).bytes)) << seed;
        for (int64_t i = 0; i < c.tokens * c.hidden; ++i)
            ASSERT_EQ(found.data()[i], wanted.data()[i]) << seed << ": " << text_of(call) << ", element " << i;
        for (const uint32_t count : counters) ASSERT_EQ(count, 0u) << seed;
    }
}

}  // namespace
}  // namespace finegemm
