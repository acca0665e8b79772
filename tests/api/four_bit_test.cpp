// Products with weights of 4 bits through the public functions. Layer tests.
#include <gtest/gtest.h>

#include <finegemm/four_bit.h>

#include "api/four_bit_misuses.h"

namespace finegemm::test {
namespace {

TEST(FourBit, ProductInCIsThatOfTheWeights) {
    const CContext context;
    FourBitCallInC call;
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    for (int64_t m = 0; m < 10; ++m)
        for (int64_t n = 0; n < 24; ++n) ASSERT_EQ(call.d_data.at(m, n), bf16_of_float(256)) << m << ", " << n;
    ASSERT_TRUE(call.d_data.surroundings_intact());
}

TEST(FourBit, RowsWithoutAGroupStayAsTheyWere) {
    const CContext context;
    FourBitCallInC call;
    call.offsets = {2, 2, 7};
    call.args.groups.data = call.offsets.data();
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    for (int64_t m = 0; m < 10; ++m)
        ASSERT_EQ(call.d_data.at(m, 23), m >= 2 && m < 7 ? bf16_of_float(256) : kUntouched) << m;
}

TEST(FourBit, NothingIsDoneForNoRows) {
    Context context(cpu_options());
    FourBitCallInC call;
    const FourBitArgs args{.a = {{nullptr, DType::E4M3, 0, 256, 256}},
                           .sfa = {{nullptr, DType::F32, 0, 2, 2}},
                           .b = {call.packed.data(), FourBitFormat::Mxfp4, 1, 24, 256},
                           .d = {{nullptr, DType::BF16, 0, 24, 24}}};
    EXPECT_NO_THROW(four_bit_gemm(context, args));
}

TEST(FourBit, UnpackedWeightsAreE4m3WithScales) {
    FourBitCallInC call;
    Buffer<uint8_t> q(DType::E4M3, 24, 256);
    Buffer<float> scales(DType::F32, 1, 2);
    ASSERT_EQ(call.unpack(c_matrix(ConstMatrix(q.view())), c_matrix(ConstMatrix(scales.view())), 1), FINEGEMM_OK)
        << call.error.message;
    EXPECT_EQ(float_of_e4m3(q.at(23, 255)) * scales.at(0, 1), 2.0f);
}

}  // namespace
}  // namespace finegemm::test
