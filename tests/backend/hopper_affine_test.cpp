// What the Hopper backend launches where D is more than the product. Layer tests.
#include <finegemm/gemm/arithmetic.h>
#include <finegemm/gemm/boxes.h>
#include <finegemm/gemm/kernel_plan.h>

#include "plan/elements.h"
#include "plan/plan.h"
#include "support/hopper.h"

namespace finegemm::hopper_affine_test {
namespace {

using test::address;

class HopperAffine : public test::HopperTest {};

constexpr int64_t kM = 1000, kN = 1032, kK = 1024;

/// A and B, as a kernel takes them.
GemmArgs operands(const Operand& a, const Operand& b, DType d) {
    GemmArgs one = test::operands(kM, kN, kK);
    if (a.scaling == Scaling::None) one.a.dtype = one.b.dtype = type_of(a.element).dtype, one.sfa = one.sfb = {};
    if (a.element == Element::E5M2) one.a.dtype = DType::E5M2;
    if (a.major == Major::MN) one.a.row_stride = 1, one.a.col_stride = kM;
    if (b.major == Major::MN) one.b.row_stride = 1, one.b.col_stride = kN;
    one.d.dtype = d;
    return one;
}

ConstMatrix c_for(const Matrix& d) {
    ConstMatrix c = d;
    c.data = address(0x800000000);
    c.row_stride = 2000;
    return c;
}
ConstMatrix bias_for(const Matrix& d) { return {address(0x700000000), DType::F32, 1, d.cols, d.cols, 1, d.device}; }

DType dtype_of(Output output) {
    return output == Output::F32 ? DType::F32 : output == Output::F16 ? DType::F16 : DType::BF16;
}

/// Calls body(configuration) for every affine kernel of a grouping.
template <typename Body>
void for_each_kernel(Grouping grouping, const Body& body) {
    int seen = 0;
    for (const GemmConfig& c : plan::kernels()) {
        if (c.finish != Finish::Affine || c.grouping != grouping) continue;
        SCOPED_TRACE(plan::name_of(c));
        body(c);
        ++seen;
    }
    EXPECT_GE(seen, 11);
}

void expect_affine(const AffineParams& p, const GemmConfig& c, uint64_t row_stride_bytes) {
    EXPECT_EQ(p.alpha, 0.5f);
    EXPECT_EQ(p.beta, -2.0f);
    EXPECT_EQ(p.bias, address(0x700000000));
    EXPECT_EQ(p.adds_c, 1u);
    for (uint32_t i = 0; i < d_panels(c); ++i) {
        const uint32_t width = c.output == Output::F32 ? 0 : d_panel(c, i).width;
        const TmaBox box = c.output == Output::F32 ? kF32DBox : d_box(width);
        const mock::Description map = mock::description_of(p.c[width]);
        EXPECT_EQ(map.data, address(0x800000000));
        EXPECT_EQ(map.row_stride_bytes, row_stride_bytes);
        EXPECT_EQ(map.box_cols, box.cols);
        EXPECT_EQ(map.box_rows, box.rows);
    }
    EXPECT_EQ(arithmetic_of(c), Arithmetic{}) << "every kernel is batch-invariant";
}

GemmOptions options_for(const GemmConfig& c, const Matrix& d) {
    return {.epilogue = {.alpha = 0.5f, .beta = -2.0f, .c = {c_for(d)}, .bias = bias_for(d)},
            .config = plan::name_of(c)};
}

TEST_F(HopperAffine, LaunchesEveryDenseKernelByName) {
    const auto hopper = backend();
    for_each_kernel(Grouping::None, [&](const GemmConfig& c) {
        const GemmArgs args = operands(c.a, c.b, dtype_of(c.output));
        const GemmOptions options = options_for(c, args.d);
        hopper->gemm({args, options});
        EXPECT_EQ(last_launch().entry, entry_of(c));
        EXPECT_EQ(last_launch().smem_bytes, kernel_plan(c).smem.total);
        expect_affine(last_launch().affine, c, 2000 * bytes_of(c.output));
    });
}

TEST_F(HopperAffine, LaunchesEveryKernelForGroupsOfRowsByName) {
    const auto hopper = backend();
    for_each_kernel(Grouping::Rows, [&](const GemmConfig& c) {
        const GemmArgs one = operands(c.a, c.b, dtype_of(c.output));
        const GroupedGemmArgs args{
            .a = {one.a},
            .sfa = {one.sfa},
            .b = {one.b, 5, kN * kK},
            .sfb = {one.sfb, 5, one.sfb.rows * one.sfb.cols},
            .d = {one.d},
            .groups = {.data = static_cast<const int32_t*>(address(0x900000000)), .size = 6, .device = one.d.device}};
        const GemmOptions options = options_for(c, one.d);
        hopper->gemm({args, options});
        EXPECT_EQ(last_launch().entry, entry_of(c));
        expect_affine(last_launch().affine, c, 2000 * bytes_of(c.output));
    });
}

TEST_F(HopperAffine, TakesTheOldKernelsForTheProductAlone) {
    const auto hopper = backend();
    const GemmArgs args = operands(kRowScaled, kBlockScaled, DType::BF16);
    const auto entry_for = [&](const Epilogue& epilogue) {
        const GemmOptions options{.epilogue = epilogue};
        hopper->gemm({args, options});
        return last_launch().entry;
    };
    const std::string plain = entry_for({});
    EXPECT_EQ(plain.find("_affine"), plain.npos);
    EXPECT_EQ(entry_for({.alpha = 1, .beta = 0, .c = {c_for(args.d)}}), plain) << "C is not read";
    EXPECT_NE(entry_for({.alpha = 2}).find("_affine"), plain.npos);
    EXPECT_NE(entry_for({.c = {c_for(args.d)}}).find("_affine"), plain.npos) << "beta is 1";
    EXPECT_EQ(last_launch().affine.beta, 1.0f);
    EXPECT_NE(entry_for({.bias = bias_for(args.d)}).find("_affine"), plain.npos);
    EXPECT_EQ(last_launch().affine.adds_c, 0u);
}

TEST_F(HopperAffine, WritesTheProductAloneInTypesThatNoOtherKernelHas) {
    const auto hopper = backend();
    for (const DType d : {DType::F16, DType::F32}) {
        hopper->gemm({operands(kRowScaled, kBlockScaled, d), {}});
        EXPECT_NE(last_launch().entry.find(d == DType::F16 ? "_f16_affine" : "_f32_affine"), std::string::npos);
        EXPECT_EQ(last_launch().affine.alpha, 1.0f);
        EXPECT_EQ(last_launch().affine.adds_c, 0u);
        EXPECT_EQ(last_launch().affine.bias, nullptr);
    }
}

TEST_F(HopperAffine, KeepsALaunchForEachAlphaBetaCAndBias) {
    const auto hopper = backend();
    const GemmArgs args = operands(kRowScaled, kBlockScaled, DType::BF16);
    Epilogue epilogue{.alpha = 3, .beta = 4, .c = {c_for(args.d)}, .bias = bias_for(args.d)};
    const auto launched = [&] {
        const GemmOptions options{.epilogue = epilogue};
        hopper->gemm({args, options});
        return last_launch().affine;
    };
    EXPECT_EQ(launched().alpha, 3.0f);
    epilogue.alpha = 5;
    EXPECT_EQ(launched().alpha, 5.0f);
    epilogue.beta = 6;
    EXPECT_EQ(launched().beta, 6.0f);
    epilogue.bias.data = address(0x710000000);
    EXPECT_EQ(launched().bias, epilogue.bias.data);
    epilogue.c.matrix.data = address(0x810000000);
    EXPECT_EQ(mock::description_of(launched().c[0]).data, epilogue.c.matrix.data);
    const long before = encodings();
    launched();
    EXPECT_EQ(encodings(), before) << "the last one is known";
}

}  // namespace
}  // namespace finegemm::hopper_affine_test
