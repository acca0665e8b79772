// Calls of the product before a norm that are wrong, for misuse_test.cpp, and a right one in C. Layer tests.
#pragma once

#include "api/calls.h"

namespace finegemm::test {

/// 5 rows, 24 columns, K = 128, 3 slices. A is 1 and 2 in turn, B is 0.5.
struct PrenormCallInC {
    Buffer<uint16_t> a_data{DType::BF16, 5, 128};
    Buffer<float> b_data{DType::F32, 24, 128}, d_data{DType::F32, 3 * 5, 24}, sqrsum_data{DType::F32, 3, 5};
    finegemm_prenorm_args args{};
    finegemm_prenorm_options options{sizeof(finegemm_prenorm_options), 0, 0, 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    PrenormCallInC() {
        for (int64_t k = 0; k < 128; ++k) {
            for (int64_t m = 0; m < 5; ++m) a_data.at(m, k) = k % 2 ? 0x3f80 : 0x4000;
            for (int64_t n = 0; n < 24; ++n) b_data.at(n, k) = 0.5f;
        }
        finegemm_matrix d = c_matrix(ConstMatrix(d_data.view()));
        d.rows = 5;
        args = {.a = c_matrix(ConstMatrix(a_data.view())),
                .b = c_matrix(ConstMatrix(b_data.view())),
                .d = {d, 3, 5 * 24},
                .sqrsum = c_matrix(ConstMatrix(sqrsum_data.view()))};
    }
    int32_t run(finegemm_context* context) { return finegemm_prenorm_gemm(context, &args, &options, &error); }
    void to_gpu() {
        for (finegemm_matrix* x : {&args.a, &args.b, &args.d.matrix, &args.sqrsum}) x->device_type = FINEGEMM_CUDA;
    }
};

struct PrenormMisuse {
    const char* name;
    void (*spoil)(PrenormCallInC&);
};

inline const PrenormMisuse kPrenorm[] = {
    {"a is f32", [](PrenormCallInC& c) { c.args.a.dtype = FINEGEMM_F32; }},
    {"b is bf16", [](PrenormCallInC& c) { c.args.b.dtype = FINEGEMM_BF16; }},
    {"d is bf16", [](PrenormCallInC& c) { c.args.d.matrix.dtype = FINEGEMM_BF16; }},
    {"sqrsum is bf16", [](PrenormCallInC& c) { c.args.sqrsum.dtype = FINEGEMM_BF16; }},
    {"a has -1 rows", [](PrenormCallInC& c) { c.args.a.rows = -1; }},
    {"b is passed as [K, N]", [](PrenormCallInC& c) { set_shape(c.args.b, 128, 24); }},
    {"k is 96", [](PrenormCallInC& c) { c.args.a.cols = c.args.b.cols = 96; }},
    {"k is 0", [](PrenormCallInC& c) { c.args.a.cols = c.args.b.cols = 0; }},
    {"n is 12", [](PrenormCallInC& c) { c.args.b.rows = 12; }},
    {"n is 40", [](PrenormCallInC& c) { c.args.b.rows = 40; }},
    {"d has 4 rows", [](PrenormCallInC& c) { c.args.d.matrix.rows = 4; }},
    {"d has 16 columns", [](PrenormCallInC& c) { c.args.d.matrix.cols = 16; }},
    {"d has no slice", [](PrenormCallInC& c) { c.args.d.count = 0; }},
    {"d has 1025 slices", [](PrenormCallInC& c) { c.args.d.count = 1025; }},
    {"sqrsum is [M, S]", [](PrenormCallInC& c) { set_shape(c.args.sqrsum, 5, 3); }},
    {"rows of a overlap", [](PrenormCallInC& c) { c.args.a.row_stride = 127; }},
    {"a is transposed", [](PrenormCallInC& c) { set_strides(c.args.a, 1, 5); }},
    {"slices of d overlap", [](PrenormCallInC& c) { c.args.d.stride = 100; }},
    {"a is null", [](PrenormCallInC& c) { c.args.a.data = nullptr; }},
    {"sqrsum is in d", [](PrenormCallInC& c) { c.args.sqrsum.data = c.args.d.matrix.data; }},
    {"d is b", [](PrenormCallInC& c) { c.args.d.matrix.data = c.args.b.data; }},
    {"b is on a GPU", [](PrenormCallInC& c) { c.args.b.device_type = FINEGEMM_CUDA; }},
    {"rows of a at odd places of a GPU", [](PrenormCallInC& c) { c.to_gpu(), c.args.a.row_stride = 132; }},
    {"b at an odd address of a GPU",
     [](PrenormCallInC& c) { c.to_gpu(), c.args.b.data = reinterpret_cast<void*>(uintptr_t{0x1004}); }},
    {"num_sms is -1", [](PrenormCallInC& c) { c.options.num_sms = -1; }},
    {"pdl is 2", [](PrenormCallInC& c) { c.options.pdl = 2; }},
    {"options have a reserved field", [](PrenormCallInC& c) { c.options.reserved = 1; }},
    {"options have half their size", [](PrenormCallInC& c) { c.options.struct_size /= 2; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences prenorm_misuses() {
    Sentences said;
    const CContext context;
    for (const PrenormMisuse& m : kPrenorm) {
        PrenormCallInC call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("prenorm: ") + m.name] = {call.error.code, call.error.message};
    }
    finegemm_error e;
    finegemm_prenorm_gemm(context.get(), nullptr, nullptr, &e), said["prenorm: args are null"] = {e.code, e.message};
    const auto explained = [&](const char* name, auto spoil) {
        finegemm_prenorm_shape shape{sizeof(finegemm_prenorm_shape), 0, 13, 24, 7168, 1, "h200"};
        spoil(shape);
        finegemm_explain_prenorm(&shape, nullptr, 0, nullptr, &e);
        said[std::string("explain_prenorm: ") + name] = {e.code, e.message};
    };
    using Shape = finegemm_prenorm_shape;
    explained("m is 0", [](Shape& s) { s.m = 0; });
    explained("n is 20", [](Shape& s) { s.n = 20; });
    explained("k is 100", [](Shape& s) { s.k = 100; });
    explained("no slice", [](Shape& s) { s.slices = 0; });
    explained("device is unknown", [](Shape& s) { s.device = "a100"; });
    explained("has half its size", [](Shape& s) { s.struct_size /= 2; });
    return said;
}

}  // namespace finegemm::test
