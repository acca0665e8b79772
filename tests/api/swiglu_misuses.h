// Calls of SwiGLU with quantisation that are wrong, for misuse_test.cpp, and a right one in C. Layer tests.
#pragma once

#include "api/calls.h"

namespace finegemm::test {

/// Two masked groups of 4 rows of 160 pairs, of which they use 4 and 1. Gates and ups are 2 of all.
struct SwigluCallInC {
    Buffer<float> x_data{DType::F32, 8, 320}, scale_data{DType::F32, 8, 2}, weight_data{DType::F32, 2, 4};
    Buffer<uint8_t> q_data{DType::E4M3, 8, 160};
    Buffer<int32_t> numbers{DType::I32, 1, 2};
    finegemm_swiglu_args args{};
    finegemm_swiglu_options options{};
    finegemm_error error{};

    SwigluCallInC() {
        for (int64_t r = 0; r < 8; ++r)
            for (int64_t c = 0; c < 320; ++c) x_data.at(r, c) = 2;
        for (int64_t g = 0; g < 2; ++g)
            for (int64_t r = 0; r < 4; ++r) weight_data.at(g, r) = 0.5f;
        numbers.at(0, 0) = 4, numbers.at(0, 1) = 1;
        const auto halves = [](Matrix both) {
            both.rows /= 2;
            return c_stack(ConstStack{both, 2, both.rows * both.row_stride});
        };
        args = {.x = halves(x_data.view()),
                .q = halves(q_data.view()),
                .scales = halves(scale_data.view()),
                .weights = c_matrix(ConstMatrix(weight_data.view())),
                .groups = {.form = FINEGEMM_MASKED,
                           .reserved = 0,
                           .data = &numbers.at(0, 0),
                           .size = 2,
                           .alignment = 0,
                           .expected_m = 0,
                           .device_type = FINEGEMM_CPU,
                           .device_index = 0}};
        options.struct_size = sizeof options;
        options.gate_alpha = 1;
    }
    int32_t run(finegemm_context* context) { return finegemm_swiglu_quantize(context, &args, &options, &error); }
    /// One matrix of 4 rows, in groups of another form.
    void to_one(int32_t form, int64_t size) {
        for (finegemm_stack* x : {&args.x, &args.q, &args.scales}) x->count = 1;
        args.weights.rows = 1;
        args.groups.form = form, args.groups.size = size, args.groups.alignment = 1;
    }
    void to_gpu() {
        for (finegemm_matrix* x : {&args.x.matrix, &args.q.matrix, &args.scales.matrix, &args.weights})
            x->device_type = FINEGEMM_CUDA;
        args.groups.device_type = FINEGEMM_CUDA;
    }
};

struct SwigluMisuse {
    const char* name;
    void (*spoil)(SwigluCallInC&);
};

inline const SwigluMisuse kSwiglu[] = {
    {"x is f16", [](SwigluCallInC& c) { c.args.x.matrix.dtype = FINEGEMM_F16; }},
    {"q is e5m2", [](SwigluCallInC& c) { c.args.q.matrix.dtype = FINEGEMM_E5M2; }},
    {"x has 336 columns", [](SwigluCallInC& c) { c.args.x.matrix.cols = 336, c.args.q.matrix.cols = 168; }},
    {"q has as many columns as x", [](SwigluCallInC& c) { c.args.q.matrix.cols = 320; }},
    {"x has no matrix", [](SwigluCallInC& c) { c.args.x.count = 0; }},
    {"q has another count", [](SwigluCallInC& c) { c.args.q.count = 1; }},
    {"scales have one column", [](SwigluCallInC& c) { c.args.scales.matrix.cols = 1; }},
    {"scales overlap", [](SwigluCallInC& c) { c.args.scales.stride = 1; }},
    {"matrices of q overlap", [](SwigluCallInC& c) { c.args.q.stride = 160; }},
    {"x is transposed", [](SwigluCallInC& c) { set_strides(c.args.x.matrix, 1, 4); }},
    {"q is in x", [](SwigluCallInC& c) { c.args.q.matrix.data = c.args.x.matrix.data; }},
    {"scales are in q", [](SwigluCallInC& c) { c.args.scales.matrix.data = c.args.q.matrix.data; }},
    {"weights are bf16", [](SwigluCallInC& c) { c.args.weights.dtype = FINEGEMM_BF16; }},
    {"weights are one row", [](SwigluCallInC& c) { c.args.weights.rows = 1; }},
    {"weights are the scales", [](SwigluCallInC& c) { c.args.weights.data = c.args.scales.matrix.data; }},
    {"weights are on a GPU", [](SwigluCallInC& c) { c.args.weights.device_type = FINEGEMM_CUDA; }},
    {"groups have no form", [](SwigluCallInC& c) { c.args.groups.form = 0; }},
    {"there is one mask", [](SwigluCallInC& c) { c.args.groups.size = 1; }},
    {"groups are on a GPU", [](SwigluCallInC& c) { c.args.groups.device_type = FINEGEMM_CUDA; }},
    {"groups are in q",
     [](SwigluCallInC& c) { c.args.groups.data = static_cast<const int32_t*>(c.args.q.matrix.data); }},
    {"offsets of a stack", [](SwigluCallInC& c) { c.args.groups.form = FINEGEMM_OFFSETS; }},
    {"one offset", [](SwigluCallInC& c) { c.to_one(FINEGEMM_OFFSETS, 1); }},
    {"two indices for four rows", [](SwigluCallInC& c) { c.to_one(FINEGEMM_INDICES, 2); }},
    {"no prefix sum", [](SwigluCallInC& c) { c.to_one(FINEGEMM_PREFIX_SUMS, 0); }},
    {"prefix sums at multiples of 3",
     [](SwigluCallInC& c) { c.to_one(FINEGEMM_PREFIX_SUMS, 2), c.args.groups.alignment = 3; }},
    {"x is off 16 bytes on a GPU", [](SwigluCallInC& c) { c.to_gpu(), c.args.x.matrix.data = address(8); }},
    {"gate_limit is -1", [](SwigluCallInC& c) { c.options.gate_limit = -1; }},
    {"gate_alpha is 0", [](SwigluCallInC& c) { c.options.gate_alpha = 0; }},
    {"up_offset is infinite", [](SwigluCallInC& c) { c.options.up_offset = INFINITY; }},
    {"num_sms is -1", [](SwigluCallInC& c) { c.options.num_sms = -1; }},
    {"interleaved is 2", [](SwigluCallInC& c) { c.options.interleaved = 2; }},
    {"options have a reserved field", [](SwigluCallInC& c) { c.options.reserved = 1; }},
    {"options have half their size", [](SwigluCallInC& c) { c.options.struct_size /= 2; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences swiglu_misuses() {
    Sentences said;
    const CContext context;
    for (const SwigluMisuse& m : kSwiglu) {
        SwigluCallInC call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("swiglu_quantize: ") + m.name] = {call.error.code, call.error.message};
    }
    finegemm_error e;
    finegemm_swiglu_quantize(context.get(), nullptr, nullptr, &e);
    said["swiglu_quantize: args are null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
