// Quantisation on the CPU: against the definition, element by element, on every instruction set that this machine has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <finegemm/quantize/quantize.h>
#include <hwy/targets.h>

#include "ops/quantize/cpu.h"
#include "support/quantize.h"

namespace finegemm {
namespace {

using test::Buffer;
using test::Input;
using test::kInfinity;
using test::kNaN;

/// All values that are not negative, in order: the index is the code.
constexpr auto kValues = [] {
    std::array<float, 127> values{};
    for (size_t code = 0; code < values.size(); ++code) values[code] = float_of_e4m3(static_cast<uint8_t>(code));
    return values;
}();

/// The code nearest to x, of two equally near ones the even one.
uint8_t nearest_code(float x) {
    if (std::isnan(x)) return 0x7f;
    const double wanted = std::min<double>(std::abs(x), 448);
    const auto above = std::ranges::lower_bound(kValues, wanted);
    auto code = static_cast<int>(above - kValues.begin());
    if (code > 0) {
        const double up = *above - wanted, down = wanted - *(above - 1);
        if (down < up || (down == up && code % 2 == 1)) --code;
    }
    return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

float scale_of(float largest, bool power_of_two) {
    if (largest == 0) return 1;
    const float scale = std::max(largest / 448, std::numeric_limits<float>::min());
    return power_of_two ? static_cast<float>(std::exp2(std::ceil(std::log2(static_cast<double>(scale))))) : scale;
}

struct Quantized {
    Buffer<uint8_t> q;
    Buffer<float> scales;
    bool mn_major;

    Quantized(ScaleShape shape, const ConstMatrix& x, const QuantizeOptions& options, bool mn_major_ = false,
              int64_t padding = 0, int threads = 2, DType codes = DType::E4M3)
        : q(codes, x.rows, x.cols, padding),
          scales(DType::F32, mn_major_ ? across(shape, x) : down(shape, x),
                 mn_major_ ? down(shape, x) : across(shape, x), padding),
          mn_major(mn_major_) {
        Matrix s = scales.view();
        if (mn_major) {
            std::swap(s.rows, s.cols);
            std::swap(s.row_stride, s.col_stride);
        }
        ThreadPool pool(threads);
        run_on_cpu(QuantizeCall{shape, x, q.view(), s, options}, pool);
    }
    static int64_t blocks(int64_t n) { return (n + 127) / 128; }
    static int64_t down(ScaleShape shape, const ConstMatrix& x) {
        return shape == ScaleShape::Blocks ? blocks(x.rows) : x.rows;
    }
    static int64_t across(ScaleShape shape, const ConstMatrix& x) {
        return shape == ScaleShape::WholeRows ? 1 : blocks(x.cols);
    }
    float scale(int64_t r, int64_t c) { return mn_major ? scales.at(c, r) : scales.at(r, c); }
};

struct Shape {
    int64_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 16}, {1, 128}, {3, 144}, {17, 400}, {128, 128}, {129, 272}, {140, 1040}};

class CpuQuantize : public testing::TestWithParam<std::tuple<DType, ScaleShape, bool, Shape>> {};

TEST_P(CpuQuantize, IsTheDefinitionBitForBitAndWritesNothingElse) {
    const auto [dtype, shape, power_of_two, size] = GetParam();
    for (const auto& [mn_major, padding] : {std::pair{false, 0}, {true, 48}}) {
        Input x(dtype, size.rows, size.cols, padding);
        test::fill(x, size.rows, size.cols, 7);
        Quantized out(shape, x.view(), {.power_of_two_scales = power_of_two}, mn_major, padding);
        const int64_t height = shape == ScaleShape::Blocks ? 128 : 1;
        const int64_t width = shape == ScaleShape::WholeRows ? size.cols : 128;
        for (int64_t r = 0; r < size.rows; r += height)
            for (int64_t c = 0; c < size.cols; c += width) {
                float largest = 0;
                const int64_t last_row = std::min(size.rows, r + height), last_col = std::min(size.cols, c + width);
                for (int64_t i = r; i < last_row; ++i)
                    for (int64_t j = c; j < last_col; ++j)
                        if (std::isfinite(x.at(i, j))) largest = std::max(largest, std::abs(x.at(i, j)));
                const float scale = scale_of(largest, power_of_two), inverse = 1 / scale;
                ASSERT_EQ(out.scale(r / height, c / width), scale) << r << ", " << c;
                for (int64_t i = r; i < last_row; ++i)
                    for (int64_t j = c; j < last_col; ++j)
                        ASSERT_EQ(out.q.at(i, j), nearest_code(x.at(i, j) * inverse))
                            << i << ", " << j << ": " << x.at(i, j);
            }
        EXPECT_TRUE(out.q.surroundings_intact());
        EXPECT_TRUE(out.scales.surroundings_intact());
    }
}

std::string name_of_case(const testing::TestParamInfo<CpuQuantize::ParamType>& info) {
    const auto [dtype, shape, power_of_two, size] = info.param;
    return std::string(dtype == DType::F32   ? "F32"
                       : dtype == DType::F16 ? "F16"
                                             : "BF16") +
           (shape == ScaleShape::Rows     ? "_rows_"
            : shape == ScaleShape::Blocks ? "_blocks_"
                                          : "_whole_rows_") +
           std::to_string(size.rows) + "x" + std::to_string(size.cols) + (power_of_two ? "_pow2" : "");
}

INSTANTIATE_TEST_SUITE_P(Cases, CpuQuantize,
                         testing::Combine(testing::Values(DType::F32, DType::F16, DType::BF16),
                                          testing::Values(ScaleShape::Rows, ScaleShape::Blocks, ScaleShape::WholeRows),
                                          testing::Bool(), testing::ValuesIn(kShapes)),
                         name_of_case);

/// Restores the choice of the instruction set.
struct AnyTarget {
    ~AnyTarget() { hwy::SetSupportedTargetsForTest(0); }
};

TEST(CpuQuantizeElements, EveryHalfBecomesTheSameOnEveryInstructionSet) {
    const AnyTarget restore;
    const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
    ASSERT_FALSE(targets.empty());
    for (const int64_t target : targets)
        for (const DType dtype : {DType::BF16, DType::F16}) {
            hwy::SetSupportedTargetsForTest(target);
            Input x(dtype, 512, 128, 0);
            for (int i = 0; i < 65536; ++i) x.halves.at(i / 128, i % 128) = static_cast<uint16_t>(i);
            Quantized out(ScaleShape::Rows, x.view(), {});
            for (int i = 0; i < 65536; ++i) {
                const float scale = out.scale(i / 128, 0);
                ASSERT_EQ(out.q.at(i / 128, i % 128), quantize_element(x.at(i / 128, i % 128), inverse_scale(scale)))
                    << "code " << i << " on " << hwy::TargetName(target);
            }
        }
}

/// A type of codes, how floats become them, and the largest without its sign.
struct OtherCodes {
    DType dtype;
    uint8_t (*of_float)(float);
    uint8_t (*magnitude)(uint8_t);
    uint8_t largest;
};

TEST(CpuQuantizeElements, OfOtherTypesHaveTheirOwnLargestCodeAndRounding) {
    constexpr OtherCodes kOthers[] = {
        {DType::E5M2, e5m2_of_float, [](uint8_t c) { return static_cast<uint8_t>(c & 0x7f); }, 0x7b},
        {DType::I8, i8_of_float, [](uint8_t c) { return static_cast<uint8_t>(c < 128 ? c : 256 - c); }, 127}};
    const AnyTarget restore;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets())
        for (const DType dtype : {DType::BF16, DType::F32}) {
            hwy::SetSupportedTargetsForTest(target);
            Input x(dtype, 140, 272, 16);
            test::fill(x, 140, 272, 9);
            for (const ScaleShape shape : {ScaleShape::Rows, ScaleShape::Blocks})
                for (const OtherCodes& codes : kOthers) {
                    Quantized out(shape, x.view(), {}, false, 16, 2, codes.dtype);
                    const int64_t height = shape == ScaleShape::Rows ? 1 : 128;
                    uint8_t largest = 0;
                    for (int64_t r = 0; r < 140; ++r)
                        for (int64_t c = 0; c < 272; ++c) {
                            const float inverse = 1 / out.scale(r / height, c / 128);
                            ASSERT_EQ(out.q.at(r, c), codes.of_float(x.at(r, c) * inverse)) << x.at(r, c);
                            if (std::isfinite(x.at(r, c))) largest = std::max(largest, codes.magnitude(out.q.at(r, c)));
                        }
                    EXPECT_EQ(largest, codes.largest);
                }
        }
}

TEST(CpuQuantizeElements, FloatsOfAllSizesBecomeTheSameOnEveryInstructionSet) {
    const AnyTarget restore;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        hwy::SetSupportedTargetsForTest(target);
        // The largest float sets the scale and makes all others small: blocks with several limits to the exponent.
        for (const uint32_t cap : {0x01000000u, 0x3b000000u, 0x43e00001u, 0x7f800000u, 0x80000000u}) {
            Input x(DType::F32, 64, 128, 0);
            std::mt19937 random(cap);
            for (int64_t r = 0; r < 64; ++r)
                for (int64_t c = 0; c < 128; ++c)
                    x.floats.at(r, c) = float_of_bits(static_cast<uint32_t>(random() % cap) |
                                                      (static_cast<uint32_t>(random()) & 0x80000000u));
            Quantized out(ScaleShape::Blocks, x.view(), {});
            for (int64_t r = 0; r < 64; ++r)
                for (int64_t c = 0; c < 128; ++c)
                    ASSERT_EQ(out.q.at(r, c), quantize_element(x.at(r, c), inverse_scale(out.scale(0, 0))))
                        << float_bits(x.at(r, c)) << " on " << hwy::TargetName(target);
        }
    }
}

/// One row of 128 floats.
Quantized of_row(const std::vector<float>& values, bool power_of_two = false) {
    Input x(DType::F32, 1, 128, 0);
    for (int64_t c = 0; c < 128; ++c)
        x.set(0, c, c < static_cast<int64_t>(values.size()) ? values[static_cast<size_t>(c)] : 0.0f);
    return Quantized(ScaleShape::Rows, x.view(), {.power_of_two_scales = power_of_two});
}

TEST(CpuQuantizeEdges, ZerosKeepTheirSignsAndGetScaleOne) {
    Quantized out = of_row({0.0f, -0.0f});
    EXPECT_EQ(out.scale(0, 0), 1.0f);
    EXPECT_EQ(out.q.at(0, 0), 0x00);
    EXPECT_EQ(out.q.at(0, 1), 0x80);
}

TEST(CpuQuantizeEdges, WhatIsNotFiniteHasNoSayInTheScale) {
    Quantized out = of_row({kNaN, kInfinity, -kInfinity, 2.0f, -kNaN});
    EXPECT_EQ(out.scale(0, 0), 2.0f / 448);
    EXPECT_EQ(out.q.at(0, 0), 0x7f);
    EXPECT_EQ(out.q.at(0, 1), 0x7e);
    EXPECT_EQ(out.q.at(0, 2), 0xfe);
    EXPECT_EQ(out.q.at(0, 3), 0x7e);
    EXPECT_EQ(out.q.at(0, 4), 0x7f);
    Quantized nothing_finite = of_row({kNaN, kInfinity});
    EXPECT_EQ(nothing_finite.scale(0, 0), 1.0f);
    EXPECT_EQ(nothing_finite.q.at(0, 1), 0x7e);
}

TEST(CpuQuantizeEdges, TheSmallestAndTheLargestFloatsMakeNoNaN) {
    for (const float x :
         {std::numeric_limits<float>::denorm_min(), 0x1p-126f, 0x1p-118f, 1e-36f, std::numeric_limits<float>::max()})
        for (const bool power_of_two : {false, true}) {
            Quantized out = of_row({x, -x}, power_of_two);
            const float scale = out.scale(0, 0);
            EXPECT_TRUE(std::isnormal(scale)) << x;
            EXPECT_TRUE(std::isnormal(1 / scale)) << x;
            EXPECT_NE(out.q.at(0, 0) & 0x7f, 0x7f) << x;
            EXPECT_EQ(out.q.at(0, 1), out.q.at(0, 0) | 0x80) << x;
        }
}

TEST(CpuQuantize, TheErrorIsAtMostHalfAStepOfTheFormat) {
    for (const ScaleShape shape : {ScaleShape::Rows, ScaleShape::Blocks}) {
        Input x(DType::F32, 256, 384, 0);
        std::mt19937 random(3);
        std::normal_distribution<float> normal;
        for (int64_t r = 0; r < 256; ++r)
            for (int64_t c = 0; c < 384; ++c) x.set(r, c, normal(random));
        Quantized out(shape, x.view(), {});
        for (int64_t r = 0; r < 256; ++r)
            for (int64_t c = 0; c < 384; ++c) {
                const double scale = out.scale(shape == ScaleShape::Rows ? r : r / 128, c / 128);
                const double error = std::abs(float_of_e4m3(out.q.at(r, c)) * scale - x.at(r, c));
                // Half of the last of three mantissa bits, or of the subnormals' step; and three roundings to float.
                EXPECT_LE(error, std::max(std::abs(x.at(r, c)) * (0x1p-4 + 0x1p-22), scale * 0x1p-10));
            }
    }
}

TEST(CpuQuantize, TheNumberOfThreadsDoesNotMatter) {
    Input x(DType::BF16, 333, 272, 0);
    test::fill(x, 333, 272, 5);
    for (const ScaleShape shape : {ScaleShape::Rows, ScaleShape::Blocks}) {
        Quantized one(shape, x.view(), {}, false, 0, 1), five(shape, x.view(), {}, false, 0, 5);
        for (int64_t r = 0; r < 333; ++r)
            for (int64_t c = 0; c < 272; ++c) ASSERT_EQ(one.q.at(r, c), five.q.at(r, c));
    }
}

}  // namespace
}  // namespace finegemm
