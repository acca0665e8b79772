// Products with weights of 4 bits through the public functions. Layer tests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <finegemm/four_bit.h>

#include "api/four_bit_misuses.h"
#include "api/moe_misuses.h"

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

TEST(FourBit, OfFp8BesideThemTheBitsAreTheSame) {
    const CContext context;
    FourBitCallInC call;
    Buffer<uint8_t> fp8(DType::E4M3, 48, 256);
    Buffer<float> scales(DType::F32, 2, 2);
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    for (int64_t g = 0; g < 2; ++g) {
        Matrix q = fp8.view(), s = scales.view();
        q.rows = 24, q.data = static_cast<uint8_t*>(q.data) + g * 24 * q.row_stride;
        s.rows = 1, s.data = static_cast<float*>(s.data) + g * s.row_stride;
        ASSERT_EQ(call.unpack(c_matrix(ConstMatrix(q)), c_matrix(ConstMatrix(s)), g), FINEGEMM_OK);
        if (g > 0) continue;
        call.args.fp8 = {c_matrix(ConstMatrix(q)), 2, 24 * q.row_stride};
        call.args.fp8_scales = {c_matrix(ConstMatrix(s)), 2, s.row_stride};
    }
    fp8.at(47, 0) = 0x7f;  // NaN: to see that these are what is multiplied
    ASSERT_EQ(call.run(context.get()), FINEGEMM_OK) << call.error.message;
    for (int64_t m = 0; m < 10; ++m)
        for (int64_t n = 0; n < 24; ++n)
            ASSERT_EQ(call.d_data.at(m, n) == bf16_of_float(256), m < 5 || n < 23) << m << ", " << n;
}

TEST(FourBit, ExplainsWhichProductIsTaken) {
    const auto told = [](int64_t rows, bool fp8) {
        return nlohmann::json::parse(explain(
            FourBitShape{.m = 8 * rows, .n = 4096, .k = 7168, .groups = 8, .expected_m = rows, .fp8 = fp8}, "h200"));
    };
    const auto few = told(16, true), many = told(1024, true), alone = told(1024, false);
    EXPECT_EQ(few["kernel"], "FineGEMM_four_bit_Mxfp4");
    EXPECT_EQ(few["kernel"], few["forms"][0]["kernel"]);
    EXPECT_EQ(few["us"], few["forms"][0]["us"]);
    const auto& fastest = many["forms"][many["forms"][1]["us"] < many["forms"][0]["us"] ? 1 : 0];
    EXPECT_EQ(std::tuple(many["kernel"], many["us"]), std::tuple(fastest["kernel"], fastest["us"]));
    EXPECT_EQ(many["forms"][1]["line"], "gemm 8192x4096x7168 e4m3:row128 e4m3:block128 bf16 groups=8 expected_m=1024");
    EXPECT_EQ(alone["kernel"], "FineGEMM_four_bit_Mxfp4_many");
    EXPECT_EQ(alone["forms"].size(), 1u);
    EXPECT_EQ(few["config"]["tiles"], 128);
    const finegemm_four_bit_shape shape{sizeof shape, FINEGEMM_MXFP4, 128, 4096, 7168, 8, 16, 0, 0, 1, "h200"};
    std::string text(1 << 14, '\0');
    finegemm_error error{};
    ASSERT_EQ(finegemm_explain_four_bit(&shape, text.data(), text.size(), nullptr, &error), FINEGEMM_OK)
        << error.message;
    EXPECT_EQ(nlohmann::json::parse(text.c_str()), few);
}

/// A layer whose weights are of 4 bits, and their FP8.
struct FourBitLayer : MoeCallInC {
    std::vector<uint8_t> packed[2];
    finegemm_four_bit_weights both[2]{};

    FourBitLayer() {
        std::minstd_rand random(5);
        for (int i = 0; i < 2; ++i) {
            Weights& w = i == 0 ? gate_up : down;
            const int64_t rows = w.codes.view().rows / kExperts, cols = w.codes.view().cols;
            Buffer<uint8_t> codes(DType::E4M3, rows, cols / 2), exponents(DType::E4M3, rows, cols / 32);
            const int64_t bytes = four_bit_bytes(FourBitFormat::Mxfp4, rows, cols);
            packed[i].resize(static_cast<size_t>(kExperts * bytes));
            both[i] = {packed[i].data(), FINEGEMM_MXFP4, FINEGEMM_CPU, 0, 0, kExperts, rows, cols};
            for (int64_t e = 0; e < kExperts; ++e) {
                for (int64_t r = 0; r < rows; ++r) {
                    for (int64_t k = 0; k < cols / 2; ++k) codes.at(r, k) = static_cast<uint8_t>(random() >> 8);
                    for (int64_t k = 0; k < cols / 32; ++k)
                        exponents.at(r, k) = static_cast<uint8_t>(120 + random() / 256 % 4);
                }
                uint8_t* const to = packed[i].data() + e * bytes;
                pack_four_bit({.codes = codes.view(), .scales = exponents.view()}, to);
                const auto part = [e](Matrix all) {
                    all.rows /= kExperts;
                    all.data = static_cast<uint8_t*>(all.data) + e * all.rows * all.row_stride * size_of(all.dtype);
                    return all;
                };
                unpack_four_bit({to, FourBitFormat::Mxfp4, 1, rows, cols}, 0, part(w.codes.view()),
                                part(w.scales.view()));
            }
        }
    }
    int32_t run_packed(finegemm_context* context) {
        return finegemm_four_bit_moe(context, &args, &both[0], &both[1], &options, &error);
    }
};

TEST(FourBitMoe, HasTheBitsOfTheLayerInFp8) {
    const CContext context;
    for (const int32_t numerics : {FINEGEMM_NUMERICS_FAST, FINEGEMM_NUMERICS_HOPPER}) {
        FourBitLayer layer;
        layer.options.numerics = numerics;
        ASSERT_EQ(layer.run(context.get()), FINEGEMM_OK) << layer.error.message;
        std::vector<uint16_t> wanted;
        for (int64_t t = 0; t < layer.kTokens; ++t)
            for (int64_t i = 0; i < layer.kHidden; ++i) wanted.push_back(layer.out.at(t, i)), layer.out.at(t, i) = 1;
        for (const bool alone : {false, true}) {
            if (alone) layer.args.gate_up = layer.args.gate_up_scales = layer.args.down = layer.args.down_scales = {};
            ASSERT_EQ(layer.run_packed(context.get()), FINEGEMM_OK) << layer.error.message;
            for (size_t i = 0; i < wanted.size(); ++i)
                ASSERT_EQ(
                    layer.out.at(static_cast<int64_t>(i) / layer.kHidden, static_cast<int64_t>(i) % layer.kHidden),
                    wanted[i])
                    << i << ", alone: " << alone;
        }
        EXPECT_NE(wanted, std::vector<uint16_t>(wanted.size(), wanted[0]));
    }
}

TEST(FourBitMoe, SaysWhatIsWrong) {
    const std::tuple<const char*, void (*)(FourBitLayer&), const char*> cases[] = {
        {"no data of down", [](FourBitLayer& l) { l.both[1].data = nullptr; },
         "down_packed: is null, but gate_up_packed is not; pass both or neither"},
        {"two formats", [](FourBitLayer& l) { l.both[1].format = FINEGEMM_INT4; },
         "down_packed: is of int4, but gate_up_packed of mxfp4; pack both alike"},
        {"int4 beside FP8", [](FourBitLayer& l) { l.both[0].format = l.both[1].format = FINEGEMM_INT4; },
         "gate_up: is given beside weights of int4"},
        {"three experts of four", [](FourBitLayer& l) { l.both[1].groups = 3; },
         "down_packed: has 3 matrices [256, 128], must have 4 [256, 128]"},
        {"half of the pairs", [](FourBitLayer& l) { l.both[0].rows = 128; }, "down_packed: has 4 matrices [256, 128]"},
        {"another K", [](FourBitLayer& l) { l.both[0].cols = 128; }, "gate_up_packed: has shape [256, 128], must be"},
        {"out in weights", [](FourBitLayer& l) { l.both[0].data = l.out.view().data; },
         "out: shares 2560 bytes with gate_up_packed"},
        {"fused without FP8",
         [](FourBitLayer& l) {
             l.args.gate_up = l.args.gate_up_scales = l.args.down = l.args.down_scales = {};
             l.options.fused = FINEGEMM_ON;
         },
         "fused: is set, but weights are of 4 bits"}};
    const CContext context;
    for (const auto& [name, spoil, message] : cases) {
        FourBitLayer layer;
        spoil(layer);
        EXPECT_EQ(layer.run_packed(context.get()), FINEGEMM_INVALID_ARGUMENT) << name;
        EXPECT_NE(std::string(layer.error.message).find(message), std::string::npos)
            << name << ": " << layer.error.message;
    }
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
