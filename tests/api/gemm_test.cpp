// What the checks let through, and what happens then: nothing, zeros, or a product. Layer tests.
#include <gtest/gtest.h>

#include <algorithm>

#include <finegemm/quantize.h>

#include "api/allocations.h"
#include "ops/gemm/checks.h"
#include "ops/quantize/checks.h"
#include "support/cpu.h"
#include "support/error_of.h"
#include "support/grouped.h"

namespace finegemm::test {
namespace {

class Gemm : public testing::Test {
protected:
    static void put_on_gpu(GemmArgs& args) {
        for (Device* d : {&args.a.device, &args.sfa.device, &args.b.device, &args.sfb.device, &args.d.device})
            *d = {DeviceType::Cuda, 0};
    }
    Context context{cpu_options()};
};

bool all_are(Buffer<uint16_t>& d, int64_t count, uint16_t value) {
    return std::all_of(d.data(), d.data() + count, [=](uint16_t x) { return x == value; });
}

TEST_F(Gemm, DoesNothingWithoutRowsOrColumnsNotEvenLookForADevice) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 64}, {16, 0}, {0, 0}}) {
        Problem p(16, 64, 128, 1);
        GemmArgs args = p.args();
        args.a.rows = args.sfa.rows = args.d.rows = m;
        args.b.rows = args.d.cols = n;
        args.sfb.rows = (n + 127) / 128;
        put_on_gpu(args);
        EXPECT_NO_THROW(gemm(context, args)) << m << " x " << n;
        EXPECT_TRUE(all_are(p.d, 16 * 64, kUntouched));
    }
}

TEST_F(Gemm, TakesNullForMatricesWithoutElements) {
    GemmArgs args{.a = {.dtype = DType::E4M3, .cols = 128},
                  .sfa = {.cols = 1},
                  .b = {.dtype = DType::E4M3, .cols = 128},
                  .sfb = {.cols = 1},
                  .d = {.dtype = DType::BF16}};
    EXPECT_NO_THROW(gemm(context, args));
}

TEST_F(Gemm, WritesZerosWithoutK) {
    Problem p(5, 24, 128, 1, false, 16);
    GemmArgs args = p.args();
    args.a.cols = args.b.cols = args.sfa.cols = args.sfb.cols = 0;
    args.a.data = args.b.data = args.sfa.data = args.sfb.data = nullptr;
    gemm(context, args);
    for (int64_t r = 0; r < 5; ++r)
        for (int64_t c = 0; c < 24; ++c) ASSERT_EQ(p.d.at(r, c), 0) << r << ", " << c;
    EXPECT_TRUE(p.d.surroundings_intact());
}

TEST_F(Gemm, SaysThatThereIsNoDriverForMatricesOnAGpu) {
    Problem p(16, 64, 128, 1);
    GemmArgs args = p.args();
    put_on_gpu(args);
    const Error e = error_of([&] { gemm(context, args); });
    EXPECT_EQ(e.code(), Errc::Unsupported);
    EXPECT_TRUE(contains(e, "run on the CPU")) << e.what();
}

TEST_F(Gemm, TakesOneScaleForAllByStridesOfZero) {
    Problem p(16, 256, 384, 3), q(16, 256, 384, 3);
    const float scale = 0.25f;
    std::fill_n(q.sfa.data(), 16 * 3, scale);
    std::fill_n(q.sfb.data(), 2 * 3, scale);
    GemmArgs args = p.args();
    for (ConstMatrix* s : {&args.sfa, &args.sfb}) s->data = &scale, s->row_stride = s->col_stride = 0;
    gemm(context, args);
    gemm(context, q.args());
    EXPECT_TRUE(std::equal(p.d.data(), p.d.data() + 16 * 256, q.d.data()));
}

TEST_F(Gemm, TakesInputsThatShareMemory) {
    Problem p(128, 128, 256, 3);
    GemmArgs args = p.args();
    args.b.data = args.a.data;
    args.sfb.data = args.sfa.data;
    EXPECT_NO_THROW(gemm(context, args));
    EXPECT_FALSE(all_are(p.d, 128 * 128, kUntouched));
}

TEST_F(Gemm, TakesAnOutputRightBesideAnInput) {
    alignas(64) static uint8_t memory[16 * 128 + 16 * 16 * 2];
    Problem p(16, 16, 128, 3);
    GemmArgs args = p.args();
    std::copy_n(p.a.data(), 16 * 128, memory);
    args.a.data = memory;
    args.d.data = memory + 16 * 128;
    EXPECT_NO_THROW(gemm(context, args));
    args.d.data = memory + 16 * 128 - 16;
    EXPECT_THROW(gemm(context, args), Error);
}

TEST_F(Gemm, LooksAtNoStrideThatNoStepIsTakenWith) {
    Problem p(1, 64, 128, 3), q(1, 64, 128, 3);
    GemmArgs args = p.args();
    args.a.row_stride = -7;
    args.d.row_stride = 3;
    args.sfa.row_stride = args.sfa.col_stride = -1;
    args.sfb.row_stride = args.sfb.col_stride = INT64_MAX;
    gemm(context, args);
    gemm(context, q.args());
    EXPECT_TRUE(std::equal(p.d.data(), p.d.data() + 64, q.d.data()));
}

TEST_F(Gemm, IgnoresTheStreamAndTheDeviceIndexOnTheCpu) {
    Problem p(16, 64, 128, 1);
    GemmArgs args = p.args();
    args.a.device.index = 5;
    args.d.device.index = -1;
    EXPECT_NO_THROW(gemm(context, args, {.stream = &p, .numerics = {}, .check_values = {}, .config = {}}));
}

TEST_F(Gemm, IsCheckedWithoutAllocation) {
    Problem p(16, 256, 384, 1);
    const GemmArgs args = p.args();
    const GemmOptions plain;
    Buffer<float> x(DType::F32, 256, 384), scales(DType::F32, 256, 3);
    Buffer<uint8_t> q(DType::E4M3, 256, 384);
    const int64_t before = allocations();
    check_gemm({args, plain});
    check_quantize({ScaleShape::Rows, x.view(), q.view(), scales.view(), {}});
    EXPECT_EQ(allocations(), before);
    EXPECT_THROW(check_gemm({GemmArgs{}, plain}), Error);
    EXPECT_GT(allocations(), before) << "allocations are not counted";
}

TEST_F(Gemm, QuantizesNothingWithoutElements) {
    const ConstMatrix x{.dtype = DType::F32, .cols = 128, .device = {DeviceType::Cuda, 0}};
    const Matrix q{.dtype = DType::E4M3, .cols = 128, .device = x.device}, scales{.cols = 1, .device = x.device};
    EXPECT_NO_THROW(quantize_rows(context, x, q, scales));
    EXPECT_NO_THROW(quantize_blocks(context, x, q, scales));
}

TEST_F(Gemm, TakesQuantizedScalesInEitherLayoutAndPadded) {
    Buffer<float> x(DType::F32, 4, 384);
    Buffer<uint8_t> q(DType::E4M3, 4, 384);
    for (int64_t r = 0; r < 4; ++r)
        for (int64_t c = 0; c < 384; ++c) x.at(r, c) = static_cast<float>(r * 3 + c / 128 + 1) * 448;
    for (const auto& [row, col] : {std::pair<int64_t, int64_t>{3, 1}, {8, 1}, {1, 4}, {1, 9}, {8, 2}}) {
        Buffer<float> scales(DType::F32, 1, 64);
        Matrix view = scales.view();
        view.rows = 4, view.cols = 3, view.row_stride = row, view.col_stride = col;
        quantize_rows(context, x.view(), q.view(), view);
        for (int64_t r = 0; r < 4; ++r)
            for (int64_t c = 0; c < 3; ++c)
                EXPECT_EQ(scales.data()[r * row + c * col], static_cast<float>(r * 3 + c + 1)) << row << ", " << col;
    }
}

}  // namespace
}  // namespace finegemm::test
