// Wrong calls of products that more is added to. Layer tests.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "api/calls.h"

namespace finegemm::test {

inline finegemm_epilogue scaled_by(float alpha, float beta) {
    finegemm_epilogue epilogue{};
    epilogue.struct_size = sizeof epilogue;
    epilogue.alpha = alpha, epilogue.beta = beta;
    return epilogue;
}

/// D = 2 A B + 3 C + bias, right until a test changes it. D is c's and bias's neighbour, in memory of its own.
struct AffineCall : GemmCall {
    Buffer<uint16_t> c_data{DType::BF16, 16, 256, 8};
    Buffer<float> bias_data{DType::F32, 1, 256};
    finegemm_epilogue epilogue = scaled_by(2, 3);

    AffineCall() {
        epilogue.c = {c_matrix(ConstMatrix(c_data.view())), 1, 0};
        epilogue.bias = c_matrix(ConstMatrix(bias_data.view()));
        options.epilogue = &epilogue;
    }
    void to_gpu() {
        for (finegemm_matrix* x : matrices()) x->device_type = FINEGEMM_CUDA;
        epilogue.c.matrix.device_type = epilogue.bias.device_type = FINEGEMM_CUDA;
    }
};

struct EpilogueMisuse {
    const char* name;
    void (*spoil)(AffineCall&);
};

inline const EpilogueMisuse kEpilogue[] = {
    {"alpha is NaN", [](AffineCall& c) { c.epilogue.alpha = kNan; }},
    {"beta is infinite", [](AffineCall& c) { c.epilogue.beta = HUGE_VALF; }},
    {"beta without c", [](AffineCall& c) { c.epilogue.c = {}; }},
    {"c is f32", [](AffineCall& c) { c.epilogue.c.matrix.dtype = FINEGEMM_F32; }},
    {"c has fewer rows", [](AffineCall& c) { c.epilogue.c.matrix.rows = 15; }},
    {"c is a stack", [](AffineCall& c) { c.epilogue.c.count = 2; }},
    {"c is null", [](AffineCall& c) { c.epilogue.c.matrix.data = nullptr; }},
    {"c is on a GPU", [](AffineCall& c) { c.epilogue.c.matrix.device_type = FINEGEMM_CUDA; }},
    {"c has overlapping rows", [](AffineCall& c) { c.epilogue.c.matrix.row_stride = 128; }},
    {"c is stored by columns", [](AffineCall& c) { c.epilogue.c.matrix.col_stride = 16; }},
    {"c has rows off 16 bytes", [](AffineCall& c) { c.to_gpu(), c.epilogue.c.matrix.row_stride = 260; }},
    {"c is off 16 bytes", [](AffineCall& c) { c.to_gpu(), c.epilogue.c.matrix.data = address(8); }},
    {"c begins in d", [](AffineCall& c) { c.epilogue.c.matrix.data = static_cast<char*>(c.args.d.data) + 512; }},
    {"c is d with other strides",
     [](AffineCall& c) { c.epilogue.c.matrix.data = c.args.d.data, c.epilogue.c.matrix.row_stride = 264; }},
    {"c uses its reserved field", [](AffineCall& c) { c.epilogue.c.matrix.reserved = 1; }},
    {"bias is bf16", [](AffineCall& c) { c.epilogue.bias.dtype = FINEGEMM_BF16; }},
    {"bias is too short", [](AffineCall& c) { c.epilogue.bias.cols = 255; }},
    {"bias has gaps", [](AffineCall& c) { c.epilogue.bias.col_stride = 2; }},
    {"bias is on a GPU", [](AffineCall& c) { c.epilogue.bias.device_type = FINEGEMM_CUDA; }},
    {"bias is off 16 bytes", [](AffineCall& c) { c.to_gpu(), c.epilogue.bias.data = address(4); }},
    {"bias lies in d", [](AffineCall& c) { c.epilogue.bias.data = c.args.d.data; }},
    {"alpha and accumulate", [](AffineCall& c) { c.options.accumulate = 1; }},
    {"alpha and scales of rows of b", [](AffineCall& c) { c.args.sfb.rows = 256, c.args.sfb.row_stride = 3; }},
    {"alpha and no k", [](AffineCall& c) { c.args.a.cols = c.args.b.cols = c.args.sfa.cols = c.args.sfb.cols = 0; }},
    {"epilogue has no size", [](AffineCall& c) { c.epilogue.struct_size = 0; }},
    {"epilogue uses its reserved field", [](AffineCall& c) { c.epilogue.reserved = 1; }},
};

inline std::map<std::string, std::pair<int32_t, std::string>> epilogue_misuses() {
    std::map<std::string, std::pair<int32_t, std::string>> said;
    const CContext context;
    for (const EpilogueMisuse& m : kEpilogue) {
        AffineCall call;
        m.spoil(call);
        call.run(context.get());
        said[std::string("epilogue: ") + m.name] = {call.error.code, call.error.message};
        bool untouched = call.problem.d.surroundings_intact();
        for (int64_t r = 0; r < 16; ++r)
            for (int64_t c = 0; c < 256; ++c) untouched &= call.problem.d.at(r, c) == kUntouched;
        EXPECT_TRUE(untouched) << m.name << ": was rejected, but wrote to memory";
    }
    const auto record = [&](const char* name, const finegemm_error& e) { said[name] = {e.code, e.message}; };
    const finegemm_epilogue twice = scaled_by(2, 0);
    KGroupedCall of_k;
    of_k.options.epilogue = &twice;
    of_k.run(context.get()), record("epilogue: alpha and groups of k", of_k.error);
    GroupedCall masked(GroupedCall::masked());
    finegemm_epilogue with_c = scaled_by(1, 1);
    Buffer<uint16_t> c(DType::BF16, 40, 256);
    with_c.c = {c_matrix(ConstMatrix(c.view())), 1, 0};
    masked.options.epilogue = &with_c;
    masked.run(context.get()), record("epilogue: c of masked groups is one matrix", masked.error);
    return said;
}

}  // namespace finegemm::test
