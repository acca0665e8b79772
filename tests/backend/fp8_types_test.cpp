// Products of e4m3 and e5m2: the CPU's model of the hardware, and what the Hopper backend launches. Layer tests.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <fstream>

#include "gemm_reference.h"
#include "ops/gemm/cpu.h"
#include "ops/gemm/cpu_tiles.h"
#include "plan/plan.h"
#include "support/hopper.h"
#include "support/matrix.h"

namespace finegemm::fp8_types {
namespace {

constexpr DType kE4m3 = DType::E4M3, kE5m2 = DType::E5M2;

/// Types of A and B.
struct Types {
    DType a, b;
};
constexpr Types kMixes[] = {{kE5m2, kE4m3}, {kE4m3, kE5m2}};

float value_of(uint8_t code, DType type) { return type == kE5m2 ? float_of_e5m2(code) : float_of_e4m3(code); }
/// The exponent with which a factor takes part in the alignment: a subnormal one has that of the smallest normal one.
int exponent_of(uint8_t code, DType type) {
    return type == kE5m2 ? std::max(code >> 2 & 31, 1) - 15 : std::max(code >> 3 & 15, 1) - 7;
}
double truncated(double x, int unit) { return std::ldexp(std::trunc(std::ldexp(x, -unit)), unit); }

/// Four wgmma of 32 products each, as docs/numerics.md states one.
float block_sum(const uint8_t* a, const uint8_t* b, Types types) {
    double sum = 0;
    for (int first = 0; first < 128; first += 32) {
        int largest = sum == 0 ? INT_MIN : std::ilogb(sum);
        for (int k = first; k < first + 32; ++k)
            if (value_of(a[k], types.a) != 0 && value_of(b[k], types.b) != 0)
                largest = std::max(largest, exponent_of(a[k], types.a) + exponent_of(b[k], types.b));
        if (largest == INT_MIN) continue;
        double total = truncated(sum, largest - 13);
        for (int k = first; k < first + 32; ++k)
            total += truncated(static_cast<double>(value_of(a[k], types.a)) * value_of(b[k], types.b), largest - 13);
        sum = total == 0 ? 0 : truncated(total, std::ilogb(total) - 13);
    }
    return static_cast<float>(sum);
}

std::vector<float> modelled(const uint8_t* a, const uint8_t* b, Types types) {
    const std::vector<float> ones(64, 1.0f);
    const GemmArgs args{.a = {a, types.a, 64, 128, 128, 1, {}},
                        .sfa = {ones.data(), DType::F32, 64, 1, 1, 1, {}},
                        .b = {b, types.b, 16, 128, 128, 1, {}},
                        .sfb = {ones.data(), DType::F32, 1, 1, 1, 1, {}},
                        .d = {nullptr, DType::BF16, 64, 16, 16, 1, {}}};
    std::vector<float> sums(64 * kCpuTileCols);
    hopper_tile(CpuTile{args, 0, 64, 0, 16}, {0, 1, 1}, false, sums.data());
    return sums;
}

TEST(Fp8Types, TheModelIsTheOneThatIsStated) {
    std::mt19937 random(5);
    for (const Types& types : kMixes)
        for (const uint32_t sparse : {1u, 20u}) {
            std::vector<uint8_t> a(64 * 128), b(16 * 128);
            for (auto [codes, type] : {std::pair{&a, types.a}, {&b, types.b}})
                for (uint8_t& code : *codes) {
                    code = random() % sparse == 0 ? static_cast<uint8_t>(random()) : uint8_t{0};
                    if (!std::isfinite(value_of(code, type))) code = 0;
                }
            test::for_each_instruction_set([&] {
                const std::vector<float> sums = modelled(a.data(), b.data(), types);
                for (size_t r = 0; r < 64; ++r)
                    for (size_t c = 0; c < 16; ++c)
                        ASSERT_EQ(float_bits(sums[r * kCpuTileCols + c]),
                                  float_bits(block_sum(&a[r * 128], &b[c * 128], types)))
                            << r << ", " << c;
            });
        }
}

/// What four chained wgmma.m64n16k32 made on an H200 (docs/numerics.md, "The experiment"): any finite codes, sparse
/// ones and any codes, of each mix.
struct Recorded {
    uint8_t a[64 * 128], b[16 * 128];
    float d[64 * 16];
};

TEST(Fp8Types, TheModelReproducesTheHardwareBitForBit) {
    std::ifstream file(FINEGEMM_TEST_DIR "/backend/data/wgmma_e5m2_h200.bin", std::ios::binary);
    int64_t nan = 0, infinite = 0;
    for (const Types& types : kMixes)
        for (const char* kind : {"any finite", "sparse", "any"}) {
            Recorded x;
            ASSERT_TRUE(file.read(reinterpret_cast<char*>(&x), sizeof x));
            const std::vector<float> sums = modelled(x.a, x.b, types);
            for (size_t r = 0; r < 64; ++r)
                for (size_t c = 0; c < 16; ++c) {
                    const float sum = sums[r * kCpuTileCols + c], by_gpu = x.d[r * 16 + c];
                    ASSERT_TRUE(std::isnan(sum) ? std::isnan(by_gpu) : float_bits(sum) == float_bits(by_gpu))
                        << kind << ", " << r << ", " << c << ": " << sum << ", " << by_gpu;
                    nan += std::isnan(sum), infinite += std::isinf(sum);
                }
        }
    EXPECT_EQ(nan, 128);
    EXPECT_EQ(infinite, 15);
}

TEST(Fp8Types, WhatIsNotFiniteReachesItsRowAlone) {
    std::vector<uint8_t> a(64 * 128, 0x3c), b(16 * 128, 0x38);  // ones
    a[3 * 128 + 5] = 0x7c, a[4 * 128 + 77] = 0xfc, a[5 * 128] = 0x7d, a[6 * 128] = 0x7c, a[6 * 128 + 127] = 0xfc;
    const std::vector<float> sums = modelled(a.data(), b.data(), {kE5m2, kE4m3});
    const auto at = [&](size_t row) { return sums[row * kCpuTileCols + 2]; };
    EXPECT_EQ(at(2), 128);
    EXPECT_EQ(at(3), INFINITY);
    EXPECT_EQ(at(4), -INFINITY);
    EXPECT_TRUE(std::isnan(at(5)) && std::isnan(at(6)));
    EXPECT_EQ(at(7), 128);
}

class HopperFp8Types : public test::HopperTest {};

GemmArgs of_types(Types types, bool row_b_scales, DType d) {
    GemmArgs args = test::operands(1024, 1024, 2176);
    args.a.dtype = types.a, args.b.dtype = types.b, args.d.dtype = d;
    if (row_b_scales) args.sfb.rows = 1024;
    return args;
}

TEST_F(HopperFp8Types, EachMixHasKernelsOfItsOwn) {
    const auto hopper = backend();
    const auto launched = [&](Types types, bool row_b_scales, DType d) {
        const GemmArgs args = of_types(types, row_b_scales, d);
        for (int i = 0; i < 2; ++i) hopper->gemm({args, {}});  // the second time as kept
        return last_launch().entry;
    };
    EXPECT_TRUE(launched({kE5m2, kE4m3}, true, DType::F32).ends_with("_1d1d_e5m2_e4m3_f32"));
    EXPECT_TRUE(launched({kE4m3, kE5m2}, true, DType::F32).ends_with("_1d1d_e4m3_e5m2_f32"));
    EXPECT_TRUE(launched({kE4m3, kE4m3}, true, DType::F32).ends_with("w2_1d1d_f32"));
    EXPECT_TRUE(launched({kE5m2, kE4m3}, true, DType::BF16).ends_with("_1d1d_e5m2_e4m3"));
    EXPECT_TRUE(launched({kE5m2, kE4m3}, false, DType::BF16).ends_with("_x2_e5m2_e4m3"));
}

}  // namespace
}  // namespace finegemm::fp8_types
