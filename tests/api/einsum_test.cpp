// Batched products by their equations, on the CPU: against sums in double. Layer tests.
#include <finegemm/einsum.h>

#include <gtest/gtest.h>

#include <cmath>

#include "api/einsum_calls.h"
#include "ops/gemm/cpu.h"
#include "support/error_of.h"

namespace finegemm::test {
namespace {

constexpr int64_t kB = 7, kH = 3, kR = 40, kD = 24;

/// Is `d` within the bound of the sum of `count` products, which `product` gives?
template <typename Product>
void expect_sum(double d, int64_t count, const Product& product, DType type, double old = 0) {
    double exact = old, absolute = std::abs(old);
    for (int64_t i = 0; i < count; ++i) {
        exact += product(i);
        absolute += std::abs(product(i));
    }
    const double bound = unscaled_sum_bound(absolute, count);
    ASSERT_LE(std::abs(d - exact), bound + (std::abs(exact) + bound) * (type == DType::F32 ? 0x1p-24 : 0x1p-8));
}

double value(uint16_t code) { return float_of_bf16(code); }

/// Weights are slices of wider tensors, and D of longer rows; what lies between stays as it is.
TEST(Einsum, MultipliesEachHead) {
    Context context(cpu_options());
    auto a = random_tensor(kB, kH, kR, 1, 8), b = random_tensor(kH, kD, kR, 2, 16);
    Tensor3<uint16_t> d(DType::BF16, kB, kH, kD, 8, 7);
    for (const Numerics numerics : {Numerics::Fast, Numerics::Exact, Numerics::Hopper}) {
        einsum(context, "bhr,hdr->bhd", {.a = a.view(), .sfa = {}, .b = b.view(), .sfb = {}, .d = d.view()},
               {.numerics = numerics});
        for (int64_t i = 0; i < kB; ++i)
            for (int64_t h = 0; h < kH; ++h) {
                for (int64_t j = 0; j < kD; ++j)
                    expect_sum(
                        value(d.at(i, h, j)), kR,
                        [&](int64_t k) { return value(a.at(i, h, k)) * value(b.at(h, j, k)); }, DType::BF16);
                for (int64_t j = kD; j < kD + 8; ++j) ASSERT_EQ(d.at(i, h, j), 7) << "behind a row";
            }
    }
}

TEST(Einsum, TakesTensorsOfHeadsFirst) {
    Context context(cpu_options());
    auto a = random_tensor(kB, kH, kR, 1), b = random_tensor(kH, kD, kR, 2), turned = random_tensor(kH, kB, kR, 0);
    for (int64_t i = 0; i < kB; ++i)
        for (int64_t h = 0; h < kH; ++h)
            for (int64_t k = 0; k < kR; ++k) turned.at(h, i, k) = a.at(i, h, k);
    Tensor3<float> d(DType::F32, kB, kH, kD), e = d;
    einsum(context, "bhr,hdr->bhd", {.a = a.view(), .sfa = {}, .b = b.view(), .sfb = {}, .d = d.view()});
    Stack heads_first = a.view();
    heads_first.matrix.data = turned.memory.data();
    heads_first.stride = kR, heads_first.matrix.row_stride = kB * kR;
    einsum(context, "bhr,hdr->bhd", {.a = heads_first, .sfa = {}, .b = b.view(), .sfb = {}, .d = e.view()});
    EXPECT_EQ(d.memory, e.memory);
}

TEST(Einsum, MultipliesEachHeadByTransposedWeights) {
    Context context(cpu_options());
    auto a = random_tensor(kB, kH, kR, 1, 8), b = random_tensor(kH, kR, kD, 2, 16);
    Tensor3<float> d(DType::F32, kB, kH, kD, 8, 7);
    for (const Numerics numerics : {Numerics::Fast, Numerics::Exact}) {
        einsum(context, "bhd,hdr->bhr", {.a = a.view(), .sfa = {}, .b = b.view(), .sfb = {}, .d = d.view()},
               {.numerics = numerics});
        for (int64_t i = 0; i < kB; ++i)
            for (int64_t h = 0; h < kH; ++h)
                for (int64_t j = 0; j < kD; ++j)
                    expect_sum(
                        d.at(i, h, j), kR, [&](int64_t k) { return value(a.at(i, h, k)) * value(b.at(h, k, j)); },
                        DType::F32);
    }
}

/// Scales of codes: one for each row of A and 128 of r, and for each 128x128 block of B.
TEST(Einsum, MultipliesCodesByTheirScales) {
    constexpr int64_t kLong = 272, kBlocks = 3;
    Context context(cpu_options());
    std::mt19937 random(3);
    const auto codes = [&](int64_t x, int64_t y) {
        Tensor3<uint8_t> all(DType::E4M3, x, y, kLong);
        for (uint8_t& code : all.memory) code = e4m3_of_float(static_cast<float>(random() % 33) - 16);
        return all;
    };
    const auto scales = [&](int64_t x, int64_t y) {
        Tensor3<float> all(DType::F32, x, y, kBlocks);
        for (float& scale : all.memory) scale = static_cast<float>(1 + random() % 4);
        return all;
    };
    auto a = codes(kB, kH), b = codes(kH, kD);
    auto sfa = scales(kB, kH), sfb = scales(kH, 1);
    Tensor3<float> d(DType::F32, kB, kH, kD);
    einsum(context, "bhr,hdr->bhd",
           {.a = a.view(), .sfa = sfa.view(), .b = b.view(), .sfb = sfb.view(), .d = d.view()});
    for (int64_t i = 0; i < kB; ++i)
        for (int64_t h = 0; h < kH; ++h)
            for (int64_t j = 0; j < kD; ++j) {
                double exact = 0;
                for (int64_t k = 0; k < kLong; ++k)
                    exact += double{float_of_e4m3(a.at(i, h, k))} * float_of_e4m3(b.at(h, j, k)) *
                             sfa.at(i, h, k / 128) * sfb.at(h, 0, k / 128);
                ASSERT_EQ(d.at(i, h, j), exact) << "integers, whose sums have no error";
            }
}

TEST(Einsum, SumsOverMatrices) {
    Context context(cpu_options());
    for (const auto& [batch, m, n, k] : {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 1, 8, 8}, {19, 5, 24, 136}})
        for (const Numerics numerics : {Numerics::Fast, Numerics::Exact, Numerics::Hopper})
            for (const bool accumulate : {false, true}) {
                auto a = random_tensor(batch, m, k, 1, 8), b = random_tensor(batch, n, k, 2);
                Tensor3<float> d(DType::F32, 1, m, n, 0, 3);
                einsum(context, "bmk,bnk->mn", {.a = a.view(), .sfa = {}, .b = b.view(), .sfb = {}, .d = d.view()},
                       {.numerics = numerics, .accumulate = accumulate});
                for (int64_t r = 0; r < m; ++r)
                    for (int64_t c = 0; c < n; ++c)
                        expect_sum(
                            d.at(0, r, c), batch * k,
                            [&, k = k](int64_t i) {
                                return value(a.at(i / k, r, i % k)) * value(b.at(i / k, c, i % k));
                            },
                            DType::F32, accumulate ? 3 : 0);
            }
}

TEST(Einsum, ASumOfNothingIsZero) {
    Context context(cpu_options());
    auto a = random_tensor(0, 5, 16, 1), b = random_tensor(0, 8, 16, 2);
    Tensor3<float> d(DType::F32, 1, 5, 8, 0, 3);
    const EinsumArgs args{.a = a.view(), .sfa = {}, .b = b.view(), .sfb = {}, .d = d.view()};
    einsum(context, "bmk,bnk->mn", args, {.accumulate = true});
    EXPECT_EQ(d.memory, std::vector<float>(40, 3));
    einsum(context, "bmk,bnk->mn", args);
    EXPECT_EQ(d.memory, std::vector<float>(40, 0));
}

TEST(Einsum, DoesNothingWithoutRows) {
    Context context(cpu_options());
    auto a = random_tensor(0, kH, kR, 1), b = random_tensor(kH, kD, kR, 2);
    Tensor3<float> d(DType::F32, 0, kH, kD);
    EXPECT_NO_THROW(
        einsum(context, "bhr,hdr->bhd", {.a = a.view(), .sfa = {}, .b = b.view(), .sfb = {}, .d = d.view()}));
}

TEST(Einsum, TheCAbiComputesIt) {
    const CContext context;
    for (const char* equation : {"bhr,hdr->bhd", "bmk,bnk->mn"}) {
        EinsumCall call(equation);
        ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
        Context other(cpu_options());
        Tensor3<float> d = call.d;
        einsum(other, equation, {.a = call.a.view(), .sfa = {}, .b = call.b.view(), .sfb = {}, .d = d.view()});
        EXPECT_EQ(call.d.memory, d.memory);
        EXPECT_FALSE(call.is_untouched());
    }
}

}  // namespace
}  // namespace finegemm::test
