// SwiGLU with quantisation: on the CPU against the rule written out, and by the text of the kernels, run on the host.
// Layer tests.
#include <gtest/gtest.h>

#include <limits>

#include <finegemm/device/swiglu_quantize.cuh>

#include "ops/quantize/cpu_math.h"
#include "ops/swiglu/cpu.h"
#include "ops/swiglu/hopper.h"
#include "support/quantize.h"
#include "support/slowdown.h"

namespace finegemm {
namespace {

using test::Buffer;
using test::Input;

constexpr GroupForm kForms[] = {GroupForm::Whole, GroupForm::Offsets, GroupForm::Indices, GroupForm::PrefixSums,
                                GroupForm::Masked};

/// Matrices with a row between them that belongs to nobody, and rows of groups or not.
struct SwigluProblem {
    GroupForm form;
    int64_t count, m, pairs;
    bool weighted;
    SwigluOptions options;
    Input x;
    Buffer<uint8_t> q;
    Buffer<float> scales, weights;  // scales: MN-major
    std::vector<int32_t> numbers;
    std::vector<bool> held;  // of all rows
    bool biased = false;
    Input bias;  // of two groups

    SwigluProblem(std::mt19937& random, GroupForm form_, DType dtype)
        : form(form_),
          count(is_stack(form) ? 1 + random() % 3 : 1),
          m(1 + random() % 60),
          pairs(16 * (1 + random() % 40)),
          weighted(random() % 2 == 0),
          x(dtype, count * (m + 1), 2 * pairs, 16),
          q(DType::E4M3, count * (m + 1), pairs, 32),
          scales(DType::F32, count * (blocks() + 1), m, 3),
          weights(DType::F32, count, m, 5),
          bias(random() % 2 == 0 ? DType::F32 : DType::BF16, 2, 2 * pairs, 8) {
        test::fill(bias, 2, 2 * pairs, static_cast<uint32_t>(random()));
        test::fill(x, count * (m + 1), 2 * pairs, static_cast<uint32_t>(random()));
        for (int64_t g = 0; g < count; ++g)
            for (int64_t r = 0; r < m; ++r) weights.at(g, r) = static_cast<float>(random() % 64) / 16 - 1;
        if (random() % 2 == 0) options = {.gate_limit = 7, .gate_alpha = 1.702f, .up_offset = 1};
        options.interleaved = random() % 2 == 0;
        options.to_bf16 = random() % 2 == 0;
        options.power_of_two_scales = random() % 2 == 0;
        choose_groups(random);
    }
    static bool is_stack(GroupForm form) { return form == GroupForm::Masked || form == GroupForm::Whole; }
    int64_t blocks() const { return (pairs + 127) / 128; }

    void choose_groups(std::mt19937& random) {
        const auto rows = static_cast<uint32_t>(m);
        const auto some = [&](uint32_t most) { return static_cast<int32_t>(random() % (most + 1)); };
        held.assign(static_cast<size_t>(count * m), form == GroupForm::Whole);
        const auto hold = [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) held[static_cast<size_t>(r)] = true;
        };
        if (form == GroupForm::Masked)
            for (int64_t g = 0; g < count; ++g) numbers.push_back(some(rows)), hold(g * m, g * m + numbers.back());
        else if (form == GroupForm::Indices)
            for (int64_t r = 0; r < m; ++r)
                numbers.push_back(some(3) - 1), held[static_cast<size_t>(r)] = numbers.back() >= 0;
        else if (form != GroupForm::Whole) {
            numbers = {some(rows), some(rows), some(rows)};
            std::ranges::sort(numbers);
            if (form == GroupForm::Offsets) hold(numbers[0], numbers[2]);
            else {  // groups begin at multiples of 16
                int32_t begin = 0;
                for (int32_t& end : numbers) {
                    end = std::min(std::max(end, begin), static_cast<int32_t>(m));
                    hold(begin, end);
                    begin = (end + 15) / 16 * 16;
                }
            }
        }
    }

    template <typename Run>
    void run(const Run& run_call) {
        for (int64_t r = 0; r < q.view().rows; ++r) std::memset(&q.at(r, 0), kUntouched, static_cast<size_t>(pairs));
        for (int64_t r = 0; r < scales.view().rows; ++r)
            for (int64_t c = 0; c < m; ++c) scales.at(r, c) = kNoScale;
        const auto of_one = [&](auto all) {
            all.rows = m;
            return all;
        };
        Matrix s = scales.view();
        std::swap(s.rows, s.cols), std::swap(s.row_stride, s.col_stride);
        s.cols = blocks();
        const SwigluArgs args{
            .x = {of_one(x.view()), count, (m + 1) * x.view().row_stride},
            .q = {of_one(q.view()), count, (m + 1) * q.view().row_stride},
            .scales = {s, count, (blocks() + 1) * s.col_stride},
            .weights = weighted ? ConstMatrix(weights.view()) : ConstMatrix{},
            .groups = {
                .form = form, .data = numbers.data(), .size = static_cast<int64_t>(numbers.size()), .alignment = 16}};
        SwigluCall call{args, options};
        if (biased) call.biases = bias.view();
        run_call(call);
    }
    /// What the rule is told of an element of x.
    float value(int64_t r, int64_t row, int64_t col) {
        return biased ? x.at(r, col) + bias.at(row < numbers[1] ? 0 : 1, col) : x.at(r, col);
    }
    /// A problem with groups by offsets and biases, which are NaN for a group without rows.
    static SwigluProblem with_bias(std::mt19937& random) {
        SwigluProblem p(random, GroupForm::Offsets, DType::BF16);
        p.biased = true;
        for (int64_t g = 0; g < 2; ++g)
            for (int64_t c = 0;
                 p.numbers[static_cast<size_t>(g)] == p.numbers[static_cast<size_t>(g) + 1] && c < 2 * p.pairs; ++c)
                p.bias.set(g, c, std::numeric_limits<float>::quiet_NaN());
        return p;
    }

    void expect_right() {
        const SwigluRule rule = SwigluCall{{}, options}.rule();
        for (int64_t i = 0; i < count * m; ++i) {
            const int64_t g = i / m, row = i % m, r = g * (m + 1) + row;
            for (int64_t b = 0; b < blocks(); ++b) {
                const float scale = scales.at(g * (blocks() + 1) + b, row);
                if (!held[static_cast<size_t>(i)]) {
                    ASSERT_EQ(scale, kNoScale) << i << ", " << b;
                    ASSERT_EQ(q.at(r, b * 128), kUntouched) << i;
                    continue;
                }
                std::vector<float> values;
                uint32_t most = 0;
                for (int64_t c = b * 128; c < std::min(pairs, b * 128 + 128); ++c) {
                    const int64_t gate = options.interleaved ? c / 8 * 16 + c % 8 : c;
                    const int64_t up = gate + (options.interleaved ? 8 : pairs);
                    values.push_back(swiglu_value<HostMath>(value(r, row, gate), value(r, row, up), rule,
                                                            weighted ? weights.at(g, row) : 1));
                    most = max(most, finite_magnitude(values.back()));
                }
                ASSERT_EQ(scale, block_scale(most, options.power_of_two_scales)) << i << ", " << b;
                for (size_t c = 0; c < values.size(); ++c)
                    ASSERT_EQ(q.at(r, b * 128 + static_cast<int64_t>(c)),
                              quantize_element(values[c], inverse_scale(scale)))
                        << i << ", " << b << ", " << c;
            }
        }
        for (int64_t g = 0; g < count; ++g) {
            ASSERT_EQ(q.at(g * (m + 1) + m, 0), kUntouched);
            ASSERT_EQ(scales.at(g * (blocks() + 1) + blocks(), 0), kNoScale);
        }
        ASSERT_TRUE(q.surroundings_intact() && scales.surroundings_intact());
    }

private:
    static constexpr uint8_t kUntouched = 0x5a;
    static constexpr float kNoScale = -7;
};

void run_kernel(const SwigluLaunch& launch, uint32_t seed) {
    const auto run = [&]<SwigluConfig C>() {
        host_kernel::launch(launch.grid, C.threads(), [&] { device::swiglu_quantize<C>(launch.params); }, seed);
    };
    constexpr SwigluConfig kF32{QuantizeInput::F32}, kBf16{QuantizeInput::BF16}, kFew{QuantizeInput::BF16, true},
        kBiased{QuantizeInput::BF16, false, true};
    if (launch.config == kF32) run.template operator()<kF32>();
    else if (launch.config == kBiased) run.template operator()<kBiased>();
    else if (launch.config == kFew) run.template operator()<kFew>();
    else run.template operator()<kBf16>();
}

TEST(CpuSwiglu, IsTheRuleForRowsOfGroupsAndNothingElse) {
    std::mt19937 random(51);
    ThreadPool pool(2);
    for (uint32_t i = 0; i < test::tried(60); ++i) {
        SwigluProblem p(random, kForms[i % 5], i % 2 == 0 ? DType::BF16 : DType::F32);
        p.run([&](const SwigluCall& call) { run_on_cpu(call, pool); });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(SwigluKernel, IsTheRuleForRowsOfGroupsAndNothingElse) {
    std::mt19937 random(52);
    for (uint32_t i = 0; i < test::tried(30); ++i) {
        SwigluProblem p(random, kForms[i % 5], i % 2 == 0 ? DType::BF16 : DType::F32);
        p.options.num_sms = i % 3 == 0 ? 1 : 0;  // few CTAs, which walk over the other rows
        p.run([&](SwigluCall call) {
            call.few = i % 4 == 0;
            run_kernel(launch_of(call, 2), i);
        });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(CpuSwiglu, AddsTheBiasOfARowsGroup) {
    std::mt19937 random(53);
    ThreadPool pool(2);
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        auto p = SwigluProblem::with_bias(random);
        p.run([&](const SwigluCall& call) { run_on_cpu(call, pool); });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(SwigluKernel, AddsTheBiasOfARowsGroup) {
    std::mt19937 random(54);
    for (uint32_t i = 0; i < test::tried(40); ++i) {
        auto p = SwigluProblem::with_bias(random);
        p.options.num_sms = i % 3 == 0 ? 1 : 0;
        p.run([&](SwigluCall call) {
            call.few = i % 4 == 0;
            run_kernel(launch_of(call, 2), i);
        });
        p.expect_right();
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace finegemm
