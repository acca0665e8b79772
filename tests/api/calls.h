// Calls through the C ABI that are right until a test changes them. Layer tests.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <finegemm/c_api.h>

#include "support/matrix.h"

namespace finegemm::test {

inline finegemm_matrix c_matrix(const ConstMatrix& x) {
    return {const_cast<void*>(x.data),
            static_cast<int32_t>(x.dtype),
            static_cast<int32_t>(x.device.type),
            x.device.index,
            0,
            x.rows,
            x.cols,
            x.row_stride,
            x.col_stride};
}

/// Options that depend on nothing around: no disk cache, two threads, a driver that does not exist.
inline finegemm_options c_options() {
    finegemm_options o{};
    o.struct_size = sizeof o;
    o.cpu_threads = 2;
    std::strcpy(o.driver_path, "/nowhere/libcuda.so.1");
    return o;
}

class CContext {
public:
    explicit CContext(const finegemm_options& options = c_options()) {
        finegemm_context_create(&options, &context_, nullptr);
    }
    ~CContext() { finegemm_context_destroy(context_); }
    CContext(const CContext&) = delete;
    CContext& operator=(const CContext&) = delete;
    finegemm_context* get() const { return context_; }

private:
    finegemm_context* context_ = nullptr;
};

/// A GEMM of 16 x 256 x 384: sfa is [16, 3], sfb [2, 3].
struct GemmCall {
    Problem problem{16, 256, 384, 7};
    finegemm_gemm_args args{};
    finegemm_gemm_options options{};
    finegemm_error error{};

    GemmCall() {
        const GemmArgs a = problem.args();
        args = {c_matrix(a.a), c_matrix(a.sfa), c_matrix(a.b), c_matrix(a.sfb), c_matrix(ConstMatrix(a.d))};
        options.struct_size = sizeof options;
    }
    std::vector<finegemm_matrix*> matrices() { return {&args.a, &args.sfa, &args.b, &args.sfb, &args.d}; }
    int32_t run(finegemm_context* context) { return finegemm_gemm(context, &args, &options, &error); }
};

/// x is [256, 384] f32: scales of rows are [256, 3], of blocks [2, 3].
struct QuantizeCall {
    Buffer<float> x_data{DType::F32, 256, 384};
    Buffer<uint8_t> q_data{DType::E4M3, 256, 384};
    Buffer<float> scale_data{DType::F32, 256, 3};
    finegemm_matrix x = c_matrix(ConstMatrix(x_data.view())), q = c_matrix(ConstMatrix(q_data.view())),
                    scales = c_matrix(ConstMatrix(scale_data.view()));
    finegemm_quantize_options options{sizeof(finegemm_quantize_options), 0, nullptr};
    finegemm_error error{};

    QuantizeCall() {
        for (int64_t r = 0; r < 256; ++r)
            for (int64_t c = 0; c < 384; ++c) x_data.at(r, c) = static_cast<float>(r - c);
    }
    int32_t run_rows(finegemm_context* context) {
        return finegemm_quantize_rows(context, &x, &q, &scales, &options, &error);
    }
    int32_t run_blocks(finegemm_context* context) {
        return finegemm_quantize_blocks(context, &x, &q, &scales, &options, &error);
    }
};

}  // namespace finegemm::test
