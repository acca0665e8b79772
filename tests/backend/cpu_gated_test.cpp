// The SwiGLU of a product, quantised, on the CPU: the bits of product, activation and quantisation apart. Layer tests.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include <finegemm/quantize/activation.h>

#include "ops/gemm/call.h"
#include "ops/quantize/cpu.h"
#include "ops/quantize/cpu_math.h"
#include "support/cpu.h"
#include "support/grouped.h"
#include "support/matrix.h"
#include "support/random.h"

namespace finegemm {
namespace {

/// A product, its SwiGLU and the quantisation of that, one after the other, in f32 or in bf16.
template <typename T>
class Apart {
public:
    test::Buffer<uint8_t> q;
    test::Buffer<float> scales;

    Apart(GemmArgs args, const Epilogue& x, Numerics numerics, Backend& backend)
        : q(DType::E4M3, args.d.rows, args.d.cols / 2), scales(DType::F32, args.d.rows, args.d.cols / 256) {
        constexpr DType kType = sizeof(T) == 2 ? DType::BF16 : DType::F32;
        const int64_t rows = args.d.rows, cols = args.d.cols / 2;
        test::Buffer<T> d(kType, rows, 2 * cols), values(kType, rows, cols);
        args.d = d.view();
        backend.gemm({args, GemmOptions{.numerics = numerics}});
        const SwigluRule rule{x.gate_limit.value_or(INFINITY), x.gate_alpha.value_or(1), x.up_offset};
        const auto value = [](T code) {
            if constexpr (sizeof(T) == 2) return float_of_bf16(code);
            else return code;
        };
        for (int64_t r = 0; r < rows; ++r) {
            const ConstMatrix& w = x.row_weights.rows.matrix;
            const float weight = w.data ? static_cast<const float*>(w.data)[r * w.row_stride] : 1;
            for (int64_t c = 0; c < cols; ++c) {
                const float y = swiglu<HostMath>(value(d.at(r, c)), value(d.at(r, cols + c)), rule, weight);
                if constexpr (sizeof(T) == 2) values.at(r, c) = bf16_of_float(y);
                else values.at(r, c) = y;
            }
            for (int64_t c = 0; c < cols; c += 128)
                scales.at(r, c / 128) =
                    cpu_quantize_block({&values.at(r, c), &q.at(r, c), kType, QuantizeCodes::E4M3, 1, 128, cols, cols},
                                       x.power_of_two_sfd);
        }
    }
};

template <typename T>
void expect_same(const test::Problem& operands, Epilogue x, Numerics numerics, bool columns, Backend& backend) {
    test::Problem p = operands;
    const int64_t cols = p.n / 2;
    test::Buffer<uint8_t> d(DType::E4M3, p.m, cols, 16);
    test::Buffer<float> sfd(DType::F32, columns ? cols / 128 : p.m, columns ? p.m : cols / 128, 1);
    GemmArgs args = p.args();
    Apart<T> apart(args, x, numerics, backend);
    args.d = d.view();
    x.sfd = {sfd.view()};
    if (Matrix& s = x.sfd.matrix; columns) std::swap(s.rows, s.cols), std::swap(s.row_stride, s.col_stride);
    backend.gemm({args, GemmOptions{.numerics = numerics, .epilogue = x}});
    EXPECT_TRUE(d.surroundings_intact() && sfd.surroundings_intact());
    for (int64_t r = 0; r < p.m; ++r) {
        for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(d.at(r, c), apart.q.at(r, c)) << "row " << r << ", column " << c;
        for (int64_t c = 0; c < cols / 128; ++c)
            ASSERT_EQ(float_bits(columns ? sfd.at(c, r) : sfd.at(r, c)), float_bits(apart.scales.at(r, c)));
    }
}

TEST(CpuGated, HasTheBitsOfProductActivationAndQuantisationApart) {
    const auto backend = test::cpu_backend();
    for (uint32_t seed = 1; seed <= 12; ++seed) {
        test::Random random(seed);
        test::Problem p(random.any(1, 300), 256 * random.any(1, 3), 16 * random.any(1, 20), seed, random.one_in(2));
        test::Buffer<float> weights(DType::F32, p.m, 1, 2);
        for (int64_t r = 0; r < p.m; ++r) weights.at(r, 0) = random.normal(1);
        Epilogue x;
        if (random.one_in(2)) x.gate_limit = 7.0f, x.gate_alpha = 1.702f, x.up_offset = 1;
        if (random.one_in(2)) x.row_weights.rows = {weights.view()};
        x.power_of_two_sfd = random.one_in(2);
        x.bf16_between = seed % 2 == 0;
        const Numerics numerics = random.one_of({Numerics::Fast, Numerics::Hopper, Numerics::Exact});
        if (x.bf16_between) expect_same<uint16_t>(p, x, numerics, random.one_in(2), *backend);
        else expect_same<float>(p, x, numerics, random.one_in(2), *backend);
        if (::testing::Test::HasFatalFailure()) return;
    }
}

/// 12 with gates of 3 and ups of 4, to within what e4m3 and its scale keep of a row whose elements are all the same.
TEST(CpuGated, IsTheSwigluOfKnownNumbers) {
    const auto backend = test::cpu_backend();
    test::Problem p(2, 256, 16, 1);
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t k = 0; k < 16; ++k) p.a.at(r, k) = e4m3_of_float(k == 0 ? 1.0f : 0.0f);
    for (int64_t r = 0; r < p.n; ++r) p.b.at(r, 0) = e4m3_of_float(r < 128 ? 3.0f : 4.0f);
    for (int64_t r = 0; r < 2; ++r) p.sfa.at(r, 0) = p.sfb.at(r, 0) = 1;
    test::Buffer<uint8_t> d(DType::E4M3, 2, 128);
    test::Buffer<float> sfd(DType::F32, 2, 1);
    GemmArgs args = p.args();
    args.d = d.view();
    GemmOptions options;
    options.epilogue.sfd = {sfd.view()};
    const auto value = [&] {
        backend->gemm({args, options});
        return float_of_e4m3(d.at(1, 127)) * sfd.at(1, 0);
    };
    const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
    EXPECT_NEAR(value(), 3 * sigmoid(3) * 4, 12e-6);
    options.epilogue.gate_alpha = 0.5f, options.epilogue.up_offset = -1;
    EXPECT_NEAR(value(), 3 * sigmoid(1.5) * 3, 9e-6);
    options.epilogue.gate_limit = 2.0f;
    EXPECT_NEAR(value(), 2 * sigmoid(1) * 1, 2e-6);
}

/// Rows of no group keep what they held, but for padding of indices, which becomes zero with scales of 1.
TEST(CpuGated, TouchesNoRowsButThoseOfGroups) {
    const auto backend = test::cpu_backend();
    for (const GroupForm form : test::kAllForms) {
        test::GroupedProblem p(test::random_grouping(form, 3, form == GroupForm::Masked ? 60 : 200, 64, 3), 256, 64, 5);
        const int64_t stacks = p.grouping.stacks(), rows = p.rows(), m = p.grouping.m;
        test::Buffer<uint8_t> d(DType::E4M3, rows, 128);
        test::Buffer<float> sfd(DType::F32, rows, 1);
        std::fill_n(d.data(), rows * 128, uint8_t{0x33});
        std::fill_n(sfd.data(), rows, -1.0f);
        GroupedGemmArgs args = p.args();
        args.d = {d.view(), stacks, m * 128};
        args.d.matrix.rows = m;
        GemmOptions options;
        options.epilogue.sfd = {sfd.view(), stacks, m};
        options.epilogue.sfd.matrix.rows = m;
        backend->gemm({args, options});
        const bool indices = form == GroupForm::Indices;
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t group = p.grouping.group_of(r);
            if (group < 0) {
                EXPECT_EQ(sfd.at(r, 0), indices ? 1.0f : -1.0f) << r;
                EXPECT_EQ(d.at(r, 5), indices ? 0 : 0x33) << r;
                continue;
            }
            test::Buffer<uint8_t> row(DType::E4M3, 1, 128);
            test::Buffer<float> scale(DType::F32, 1, 1);
            GemmArgs of_row = p.dense(r, group);
            of_row.d = row.view();
            GemmOptions of_one;
            of_one.epilogue.sfd = {scale.view()};
            backend->gemm({of_row, of_one});
            EXPECT_EQ(scale.at(0, 0), sfd.at(r, 0)) << r;
            EXPECT_EQ(std::memcmp(&row.at(0, 0), &d.at(r, 0), 128), 0) << r;
        }
    }
}

}  // namespace
}  // namespace finegemm
