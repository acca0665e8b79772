// Calls with weights of 4 bits that are wrong, for misuse_test.cpp, and right ones in C. Layer tests.
#pragma once

#include "api/calls.h"

namespace finegemm::test {

/// 2 groups of 24 x 256 weights; 10 rows, 5 of each group.
struct FourBitCallInC {
    std::vector<uint8_t> packed;
    Buffer<uint8_t> codes{DType::E4M3, 24, 128}, exponents{DType::E4M3, 24, 8}, a_data{DType::E4M3, 10, 256};
    Buffer<float> sfa_data{DType::F32, 10, 2};
    Buffer<uint16_t> d_data{DType::BF16, 10, 24};
    std::vector<int32_t> offsets{0, 5, 10};
    finegemm_four_bit_source source{};
    finegemm_four_bit_args args{};
    finegemm_four_bit_options options{sizeof(finegemm_four_bit_options), 0, 0, 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    FourBitCallInC() {
        for (int64_t r = 0; r < 24; ++r) {
            for (int64_t i = 0; i < 128; ++i) codes.at(r, i) = 0x22;       // 1 and 1
            for (int64_t i = 0; i < 8; ++i) exponents.at(r, i) = 127 + 1;  // times 2
        }
        for (int64_t r = 0; r < 10; ++r) {
            for (int64_t k = 0; k < 256; ++k) a_data.at(r, k) = 0x38;  // 1
            sfa_data.at(r, 0) = sfa_data.at(r, 1) = 0.5f;
        }
        source = {
            FINEGEMM_MXFP4, 0, 0, 0, c_matrix(ConstMatrix(codes.view())), c_matrix(ConstMatrix(exponents.view()))};
        int64_t bytes = 0;
        finegemm_four_bit_bytes(FINEGEMM_MXFP4, 24, 256, &bytes, nullptr);
        packed.resize(static_cast<size_t>(2 * bytes));
        for (int64_t g = 0; g < 2; ++g) finegemm_pack_four_bit(&source, packed.data() + g * bytes, nullptr);
        args = {.a = {c_matrix(ConstMatrix(a_data.view())), 1, 0},
                .sfa = {c_matrix(ConstMatrix(sfa_data.view())), 1, 0},
                .b = {packed.data(), FINEGEMM_MXFP4, FINEGEMM_CPU, 0, 0, 2, 24, 256},
                .d = {c_matrix(ConstMatrix(d_data.view())), 1, 0},
                .groups = {FINEGEMM_OFFSETS, 0, offsets.data(), 3, 128, 0, FINEGEMM_CPU, 0},
                .fp8 = {},
                .fp8_scales = {}};
    }
    int32_t run(finegemm_context* context) { return finegemm_four_bit_gemm(context, &args, &options, &error); }
    int32_t pack() { return finegemm_pack_four_bit(&source, packed.data(), &error); }
    int32_t unpack(finegemm_matrix q, finegemm_matrix scales, int64_t group) {
        return finegemm_unpack_four_bit(&args.b, group, &q, &scales, &error);
    }
    void to_gpu() {
        for (finegemm_matrix* x : {&args.a.matrix, &args.sfa.matrix, &args.d.matrix}) x->device_type = FINEGEMM_CUDA;
        args.b.device_type = args.groups.device_type = FINEGEMM_CUDA;
    }
};

struct FourBitMisuse {
    const char* name;
    void (*spoil)(FourBitCallInC&);
};

inline const FourBitMisuse kFourBit[] = {
    {"a is bf16", [](FourBitCallInC& c) { c.args.a.matrix.dtype = FINEGEMM_BF16; }},
    {"sfa is bf16", [](FourBitCallInC& c) { c.args.sfa.matrix.dtype = FINEGEMM_BF16; }},
    {"d is f32", [](FourBitCallInC& c) { c.args.d.matrix.dtype = FINEGEMM_F32; }},
    {"format is 3", [](FourBitCallInC& c) { c.args.b.format = 3; }},
    {"b has no group", [](FourBitCallInC& c) { c.args.b.groups = 0; }},
    {"b has 20 rows", [](FourBitCallInC& c) { c.args.b.rows = 20; }},
    {"b has 48 columns", [](FourBitCallInC& c) { c.args.b.cols = 48; }},
    {"int4 with 192 columns", [](FourBitCallInC& c) { c.args.b.format = FINEGEMM_INT4, c.args.b.cols = 192; }},
    {"b is null", [](FourBitCallInC& c) { c.args.b.data = nullptr; }},
    {"b has a reserved field", [](FourBitCallInC& c) { c.args.b.reserved = 1; }},
    {"a has 128 columns", [](FourBitCallInC& c) { c.args.a.matrix.cols = 128; }},
    {"d has 9 rows", [](FourBitCallInC& c) { c.args.d.matrix.rows = 9; }},
    {"d has 16 columns", [](FourBitCallInC& c) { c.args.d.matrix.cols = 16; }},
    {"sfa has a column", [](FourBitCallInC& c) { c.args.sfa.matrix.cols = 1; }},
    {"two matrices of a", [](FourBitCallInC& c) { c.args.a.count = 2; }},
    {"one matrix of a for whole groups",
     [](FourBitCallInC& c) { c.args.groups = {FINEGEMM_WHOLE, 0, nullptr, 0, 128, 0, FINEGEMM_CPU, 0}; }},
    {"rows of a overlap", [](FourBitCallInC& c) { c.args.a.matrix.row_stride = 255; }},
    {"rows of d overlap", [](FourBitCallInC& c) { c.args.d.matrix.row_stride = 23; }},
    {"d is in b", [](FourBitCallInC& c) { c.args.d.matrix.data = c.packed.data() + 64; }},
    {"d is a", [](FourBitCallInC& c) { c.args.d.matrix.data = c.args.a.matrix.data; }},
    {"form of groups is 9", [](FourBitCallInC& c) { c.args.groups.form = 9; }},
    {"two offsets", [](FourBitCallInC& c) { c.args.groups.size = 2; }},
    {"three indices", [](FourBitCallInC& c) { c.args.groups.form = FINEGEMM_INDICES; }},
    {"prefix sums at multiples of 3",
     [](FourBitCallInC& c) {
         c.args.groups.form = FINEGEMM_PREFIX_SUMS, c.args.groups.size = 2, c.args.groups.alignment = 3;
     }},
    {"expected_m is -1", [](FourBitCallInC& c) { c.args.groups.expected_m = -1; }},
    {"b is on a GPU", [](FourBitCallInC& c) { c.args.b.device_type = FINEGEMM_CUDA; }},
    {"b at an odd address of a GPU", [](FourBitCallInC& c) { c.to_gpu(), c.args.b.data = address(8); }},
    {"rows of a at odd places of a GPU", [](FourBitCallInC& c) { c.to_gpu(), c.args.a.matrix.row_stride = 264; }},
    {"fp8 has a matrix",
     [](FourBitCallInC& c) {
         c.args.fp8 = c.args.a, c.args.fp8.matrix.rows = 24;
         c.args.fp8_scales = c.args.sfa, c.args.fp8_scales.matrix.rows = 1;
     }},
    {"fp8 has 10 rows", [](FourBitCallInC& c) { c.args.fp8 = c.args.a, c.args.fp8_scales = c.args.sfa; }},
    {"fp8 has scales of 10 rows",
     [](FourBitCallInC& c) { c.args.fp8 = c.args.a, c.args.fp8.matrix.rows = 24, c.args.fp8_scales = c.args.sfa; }},
    {"fp8 is bf16",
     [](FourBitCallInC& c) {
         c.args.fp8 = c.args.a, c.args.fp8.matrix.dtype = FINEGEMM_BF16, c.args.fp8_scales = c.args.sfa;
     }},
    {"fp8 has no scales", [](FourBitCallInC& c) { c.args.fp8 = {c.args.a.matrix, 2, 0}, c.args.fp8.matrix.rows = 24; }},
    {"fp8_scales without fp8", [](FourBitCallInC& c) { c.args.fp8_scales = c.args.sfa; }},
    {"num_sms is -1", [](FourBitCallInC& c) { c.options.num_sms = -1; }},
    {"pdl is 2", [](FourBitCallInC& c) { c.options.pdl = 2; }},
    {"numerics is 7", [](FourBitCallInC& c) { c.options.numerics = 7; }},
    {"options have half their size", [](FourBitCallInC& c) { c.options.struct_size /= 2; }},
};

inline const FourBitMisuse kPackFourBit[] = {
    {"format is 0", [](FourBitCallInC& c) { c.source.format = 0; }},
    {"codes are bf16", [](FourBitCallInC& c) { c.source.codes.dtype = FINEGEMM_BF16; }},
    {"codes have 20 rows", [](FourBitCallInC& c) { c.source.codes.rows = 20; }},
    {"exponents are f32", [](FourBitCallInC& c) { c.source.scales.dtype = FINEGEMM_F32; }},
    {"exponents have 4 columns", [](FourBitCallInC& c) { c.source.scales.cols = 4; }},
    {"an exponent is 255", [](FourBitCallInC& c) { c.exponents.at(3, 5) = 255; }},
    {"exponents differ by 12", [](FourBitCallInC& c) { c.exponents.at(3, 5) = 140; }},
    {"offset codes of mxfp4", [](FourBitCallInC& c) { c.source.offset = 1; }},
    {"high_first is 2", [](FourBitCallInC& c) { c.source.high_first = 2; }},
    {"scales of int4 are bytes", [](FourBitCallInC& c) { c.source.format = FINEGEMM_INT4; }},
    {"a scale of int4 is negative",
     [](FourBitCallInC& c) {
         c.source.format = FINEGEMM_INT4, c.source.scales = c_matrix(ConstMatrix(c.d_data.view()));
         c.source.scales.rows = 24, c.source.scales.cols = 2, c.source.scales.row_stride = 2;
     }},
    {"codes are on a GPU", [](FourBitCallInC& c) { c.source.codes.device_type = FINEGEMM_CUDA; }},
    {"codes are null", [](FourBitCallInC& c) { c.source.codes.data = nullptr; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences four_bit_misuses() {
    Sentences said;
    const CContext context;
    for (const FourBitMisuse& m : kFourBit) {
        FourBitCallInC call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("four_bit_gemm: ") + m.name] = {call.error.code, call.error.message};
    }
    for (const FourBitMisuse& m : kPackFourBit) {
        FourBitCallInC call;
        m.spoil(call);
        call.pack();
        said[std::string("pack_four_bit: ") + m.name] = {call.error.code, call.error.message};
    }
    FourBitCallInC call;
    Buffer<uint8_t> q(DType::E4M3, 24, 256);
    const finegemm_matrix codes = c_matrix(ConstMatrix(q.view())), scales = c_matrix(ConstMatrix(call.sfa_data.view()));
    finegemm_matrix of_block = scales, few = codes;
    of_block.rows = 1, few.rows = 16;
    call.unpack(codes, of_block, 2), said["unpack_four_bit: group is 2"] = {call.error.code, call.error.message};
    call.unpack(few, of_block, 0), said["unpack_four_bit: q has 16 rows"] = {call.error.code, call.error.message};
    call.unpack(codes, scales, 0), said["unpack_four_bit: scales of rows"] = {call.error.code, call.error.message};
    return said;
}

}  // namespace finegemm::test
