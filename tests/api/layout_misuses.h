// Products of A and B that are stored in layouts that nobody takes, for misuse_test.cpp. Layer tests.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "api/epilogue_misuses.h"

namespace finegemm::test {

/// A and B in bf16 of addresses that nobody reads, 64 x 64 x 128, stored by columns. For `groups` B and D are stacks.
struct LayoutCall {
    finegemm_matrix a = by_columns(0x10000, 64), b = by_columns(0x20000, 64),
                    d = c_matrix(ConstMatrix{address(0x30000), DType::BF16, 64, 64, 64, 1, {}});
    finegemm_gemm_options options{};
    finegemm_epilogue epilogue = scaled_by(1, 0);
    int32_t layout = FINEGEMM_COLUMNS;
    finegemm_error error{};

    LayoutCall() { options.struct_size = sizeof options; }
    static finegemm_matrix by_columns(uintptr_t at, int64_t rows) {
        return c_matrix(ConstMatrix{address(at), DType::BF16, rows, 128, 1, rows, {}});
    }
    void to_gpu() { a.device_type = b.device_type = d.device_type = FINEGEMM_CUDA; }
    void make_rows(finegemm_matrix& x) { set_strides(x, 128, 1); }

    void run(finegemm_context* context) {
        const finegemm_gemm_args args{.a = a, .sfa = {}, .b = b, .sfb = {}, .d = d};
        finegemm_gemm(context, &args, &options, &error);
    }
    void run_rows(finegemm_context* context) {
        static constexpr int32_t kOffsets[] = {0, 64};
        const finegemm_grouped_gemm_args args{
            {a, 1, 0}, {}, {b, 1, 0}, {}, {d, 1, 0}, {FINEGEMM_OFFSETS, 0, kOffsets, 2, 128, 0, FINEGEMM_CPU, 0}};
        finegemm_grouped_gemm(context, &args, &options, &error);
    }
    void run_k(finegemm_context* context) {
        static constexpr int32_t kOffsets[] = {0, 128};
        const finegemm_k_grouped_gemm_args args{a, {}, b, {}, {d, 1, 0}, kOffsets, 1, FINEGEMM_CPU, 0, layout, 0};
        finegemm_k_grouped_gemm(context, &args, &options, &error);
    }
};

struct LayoutMisuse {
    const char* name;
    void (LayoutCall::*run)(finegemm_context*);
    void (*spoil)(LayoutCall&);
};

inline constexpr auto kDense = &LayoutCall::run, kOfRows = &LayoutCall::run_rows, kOfK = &LayoutCall::run_k;
inline const LayoutMisuse kLayouts[] = {
    {"neither rows nor columns of a are contiguous", kDense, [](LayoutCall& c) { set_strides(c.a, 2, 128); }},
    {"columns of b overlap", kDense, [](LayoutCall& c) { c.b.col_stride = 56; }},
    {"columns of b are off 16 bytes", kDense, [](LayoutCall& c) { c.to_gpu(), c.b.col_stride = 68; }},
    {"columns of d are contiguous", kDense, [](LayoutCall& c) { set_strides(c.d, 1, 64); }},
    {"columns of a in groups of rows of one matrix", kOfRows, [](LayoutCall&) {}},
    {"columns of a and rows of b in groups of k", kOfK, [](LayoutCall& c) { c.make_rows(c.b); }},
    {"columns of a and b in groups of k that are blocks", kOfK, [](LayoutCall& c) { c.layout = FINEGEMM_BLOCKS; }},
};

inline std::map<std::string, std::pair<int32_t, std::string>> layout_misuses() {
    std::map<std::string, std::pair<int32_t, std::string>> said;
    const CContext context;
    for (const LayoutMisuse& m : kLayouts) {
        LayoutCall call;
        m.spoil(call);
        (call.*m.run)(context.get());
        said[std::string("layouts: ") + m.name] = {call.error.code, call.error.message};
    }
    return said;
}

}  // namespace finegemm::test
