// MXFP8 with scales for 128 of K, on the CPU: against the definition in double. Layer tests.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/quantize/cpu.h"
#include "support/reencode.h"
#include "support/slowdown.h"

namespace finegemm::cpu_reencode_test {
namespace {

using test::ReencodeProblem;

/// Sign, four exponent bits with bias 7, three mantissa bits; written here once more.
double value_of(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (code & 0x7f) == 0x7f ? std::nan("") : code & 0x80 ? -size : size;
}

/// What it stands for.
double value_at(ReencodeProblem& p, int64_t g, int64_t r, int64_t c) {
    const auto e = static_cast<int>(p.exponent(g, r, c));
    const double code = value_of(p.codes.at(g, r, c));
    return e == 255 ? std::nan("") : e == 0 ? code * 0 : std::ldexp(code, e - 127);
}

/// The largest of what is not NaN.
double largest(ReencodeProblem& p, int64_t g, int64_t row, int64_t rows, int64_t col) {
    double most = 0;
    for (int64_t r = row; r < std::min(p.shape.m, row + rows); ++r)
        for (int64_t c = col; c < std::min(p.shape.k, col + 128); ++c)
            most = std::fmax(most, std::fabs(value_at(p, g, r, c)));
    return most;
}

double wanted_scale(double most) {
    if (most == 0) return 1;
    double scale = 0x1p-126;
    while (most > 448 * scale) scale *= 2;
    return scale;
}

/// Checks one value. Is it not what it was?
bool is_inexact(ReencodeProblem& p, int64_t g, int64_t r, int64_t c, double scale) {
    const double before = value_at(p, g, r, c), after = value_of(p.q.at(g, r, c)) * scale;
    if (std::isnan(before)) {
        EXPECT_EQ(p.q.at(g, r, c), 0x7f) << r << ", " << c;
        return false;
    }
    EXPECT_EQ(std::signbit(before), std::signbit(after)) << r << ", " << c;
    const double off_by = std::fabs(before) < 0x1p-6 * scale ? 0x1p-10 * scale : 0;
    EXPECT_LE(std::fabs(before - after), off_by) << r << ", " << c;
    return before != after;
}

void expect_definition(ReencodeProblem& p) {
    const int64_t height = p.shape.blocks ? 128 : 1;
    uint32_t changed = ReencodeProblem::kBefore;
    for (int64_t g = 0; g < p.shape.count; ++g)
        for (int64_t r = 0; r < p.shape.m; ++r)
            for (int64_t col = 0; col < p.shape.k; col += 128) {
                const double scale = wanted_scale(largest(p, g, r / height * height, height, col));
                ASSERT_EQ(p.scales.at(g, r / height, col / 128), scale) << g << ": " << r << ", " << col;
                bool inexact = false;
                for (int64_t c = col; c < std::min(p.shape.k, col + 128); ++c) inexact |= is_inexact(p, g, r, c, scale);
                changed += inexact;
                if (testing::Test::HasFailure()) return;
            }
    ASSERT_EQ(p.changed[1], p.shape.counted ? changed : ReencodeProblem::kBefore);
}

void run(ReencodeProblem& p, int threads = 2) {
    ThreadPool pool(threads);
    p.run([&](const ReencodeCall& call) { run_on_cpu(call, pool); });
}

TEST(CpuReencode, KeepsToTheDefinitionAndWritesNothingElse) {
    std::mt19937 random(51);
    for (uint32_t i = 0; i < test::tried(100); ++i) {
        ReencodeProblem p = test::random_reencode(random);
        run(p);
        SCOPED_TRACE(p.name());
        ASSERT_TRUE(p.surroundings_intact());
        expect_definition(p);
        if (testing::Test::HasFailure()) return;
    }
}

/// One row of 128 columns, all of one code but for the first 32.
ReencodeProblem row_of(int64_t e, uint8_t code, int64_t others_e, uint8_t others) {
    ReencodeProblem p({.count = 1, .m = 1, .k = 128, .blocks = false}, 1);
    for (int64_t c = 0; c < 128; ++c) {
        p.codes.at(0, 0, c) = c < 32 ? code : others;
        p.set_exponent(0, 0, c, c < 32 ? e : others_e);
    }
    run(p, 1);
    expect_definition(p);
    return p;
}
float scale_of(ReencodeProblem p) { return p.scales.at(0, 0, 0); }
uint32_t added(const ReencodeProblem& p) { return p.changed[1] - ReencodeProblem::kBefore; }

TEST(CpuReencode, TakesTheLeastScaleThatHoldsTheLargestCode) {
    constexpr uint8_t kOne = 0x38, kMost = 0x7e, kLeast = 0x01;  // 1, 448, 2^-9
    EXPECT_EQ(scale_of(row_of(127, kMost, 127, 0)), 1.0f);
    EXPECT_EQ(scale_of(row_of(127, kOne, 127, 0)), 0x1p-8f);  // code 256
    EXPECT_EQ(scale_of(row_of(127, 0x3e, 127, 0)), 0x1p-8f);  // 1.75: code 448
    EXPECT_EQ(scale_of(row_of(127, 0x3f, 127, 0)), 0x1p-7f);  // 1.875: 480 would be too much
    EXPECT_EQ(scale_of(row_of(254, kMost, 1, kMost)), 0x1p127f);
    EXPECT_EQ(scale_of(row_of(1, kLeast, 1, 0)), 0x1p-126f);
    EXPECT_EQ(scale_of(row_of(9, kOne, 9, 0)), 0x1p-126f);
}

TEST(CpuReencode, ZerosAndNanHaveNoSay) {
    EXPECT_EQ(scale_of(row_of(200, 0x80, 100, 0)), 1.0f);
    EXPECT_EQ(scale_of(row_of(0, 0x7e, 255, 0x7e)), 1.0f);
    EXPECT_EQ(scale_of(row_of(200, 0x7f, 127, 0x7e)), 1.0f);
    EXPECT_EQ(scale_of(row_of(200, 0xff, 100, 0x7f)), 1.0f);
}

/// The factor of such codes would be more than a float holds: there is no infinity times zero.
TEST(CpuReencode, ZerosStayZeroBesideMuchSmallerValues) {
    for (int64_t e = 128; e < 255; ++e)
        for (const int64_t others : {int64_t{1}, e - 127, e - 126, int64_t{20}}) {
            ReencodeProblem p = row_of(e, 0x80, others, 0x38);
            ASSERT_EQ(p.q.at(0, 0, 0), 0x80) << e << ", " << others;
            ASSERT_EQ(added(p), 0u);
        }
}

TEST(CpuReencode, WhatBecomesZeroIsCountedHoweverSmallItIs) {
    for (int64_t e = 1; e < 127; ++e) {
        ReencodeProblem p = row_of(e, 0xbf, 254, 0x7e);
        ASSERT_EQ(p.q.at(0, 0, 0), 0x80) << e;
        ASSERT_EQ(added(p), 1u) << e;
    }
}

TEST(CpuReencode, ValuesBelowNormalCodesLoseBits) {
    ReencodeProblem p = row_of(120, 0x38, 127, 0x7e);  // 2^-7 beside a scale of 1: a subnormal code
    EXPECT_EQ(p.q.at(0, 0, 0), 0x04);
    EXPECT_EQ(added(p), 0u);
    p = row_of(120, 0x39, 127, 0x7e);  // 1.125 times that
    EXPECT_EQ(added(p), 1u) << "a group counts once";
}

TEST(CpuReencode, TheNumberOfThreadsDoesNotMatter) {
    for (const bool blocks : {false, true}) {
        ReencodeProblem p({.count = 3, .m = 333, .k = 272, .blocks = blocks, .spread = 20}, 5);
        run(p, 1);
        const std::vector<uint8_t> by_one = p.written();
        run(p, 5);
        EXPECT_EQ(by_one, p.written());
    }
}

}  // namespace
}  // namespace finegemm::cpu_reencode_test
