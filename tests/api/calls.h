// Calls through the C ABI that are right until a test changes them. Layer tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <finegemm/c_api.h>

#include "support/cpu.h"
#include "support/grouped.h"
#include "support/k_grouped.h"
#include "support/matrix.h"

namespace finegemm::test {

inline constexpr int64_t kHuge = int64_t{1} << 62;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// An address that is a multiple of `alignment` and of nothing larger. Nothing looks there: the call is rejected first.
inline void* address(uintptr_t alignment) { return reinterpret_cast<void*>(0x10000 + alignment); }

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
    std::strcpy(o.driver_path, kNoDriver);
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
    Problem problem;
    finegemm_gemm_args args{};
    finegemm_gemm_options options{};
    finegemm_error error{};

    explicit GemmCall(int64_t m = 16, int64_t n = 256, int64_t k = 384) : problem(m, n, k, 7) {
        const GemmArgs a = problem.args();
        args = {c_matrix(a.a), c_matrix(a.sfa), c_matrix(a.b), c_matrix(a.sfb), c_matrix(ConstMatrix(a.d))};
        options.struct_size = sizeof options;
    }
    std::vector<finegemm_matrix*> matrices() { return {&args.a, &args.sfa, &args.b, &args.sfb, &args.d}; }
    int32_t run(finegemm_context* context) { return finegemm_gemm(context, &args, &options, &error); }
};

inline finegemm_stack c_stack(const ConstStack& x) { return {c_matrix(x.matrix), x.count, x.stride}; }

/// Four groups, b is [4, 256, 384], and 40 rows: a is [40, 384], or masked [4, 40, 384].
struct GroupedCall {
    GroupedProblem problem;
    finegemm_grouped_gemm_args args{};
    finegemm_gemm_options options{};
    finegemm_error error{};

    explicit GroupedCall(Grouping grouping = {GroupForm::Offsets, 4, 40, 128, {2, 10, 10, 25, 40}})
        : problem(std::move(grouping), 256, 384, 7) {
        const GroupedGemmArgs a = problem.args();
        args = {c_stack(a.a),
                c_stack(a.sfa),
                c_stack(a.b),
                c_stack(a.sfb),
                c_stack(ConstStack(a.d)),
                {static_cast<int32_t>(a.groups.form), 0, a.groups.data, a.groups.size, a.groups.alignment, 0,
                 FINEGEMM_CPU, 0}};
        options.struct_size = sizeof options;
    }
    static Grouping masked() { return {GroupForm::Masked, 4, 40, 128, {2, 0, 40, 25}}; }
    int32_t run(finegemm_context* context) { return finegemm_grouped_gemm(context, &args, &options, &error); }
};

/// Three groups, of 128, 0 and 256 of K: a is [40, 384], b [256, 384], d [3, 40, 256].
struct KGroupedCall {
    KGroupedProblem problem{40, 256, 384, {0, 128, 128, 384}, 7};
    finegemm_k_grouped_gemm_args args{};
    finegemm_gemm_options options{};
    finegemm_error error{};

    KGroupedCall() {
        problem.fill_d(7);
        const KGroupedGemmArgs a = problem.args();
        args = {c_matrix(a.a),
                c_matrix(a.sfa),
                c_matrix(a.b),
                c_matrix(a.sfb),
                c_stack(ConstStack(a.d)),
                a.offsets,
                a.groups,
                FINEGEMM_CPU,
                0,
                FINEGEMM_COLUMNS,
                0};
        options.struct_size = sizeof options;
    }
    void set_offsets(std::vector<int32_t> offsets) {
        problem.offsets = std::move(offsets);
        args.offsets = problem.offsets.data();
    }
    int32_t run(finegemm_context* context) { return finegemm_k_grouped_gemm(context, &args, &options, &error); }
};

/// x is [256, 384] f32: scales of rows are [256, 3], of blocks [2, 3].
struct QuantizeCall {
    Buffer<float> x_data{DType::F32, 256, 384};
    Buffer<uint8_t> q_data{DType::E4M3, 256, 384};
    Buffer<float> scale_data{DType::F32, 256, 3};
    finegemm_matrix x = c_matrix(ConstMatrix(x_data.view())), q = c_matrix(ConstMatrix(q_data.view())),
                    scales = c_matrix(ConstMatrix(scale_data.view()));
    finegemm_quantize_options options{sizeof(finegemm_quantize_options), 0, nullptr, nullptr, nullptr};
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

/// x is [2, 256, 384] f32, with the codes transposed to [2, 384, 256].
struct QuantizeWeightsCall {
    Buffer<float> x_data{DType::F32, 512, 384};
    Buffer<uint8_t> q_data{DType::E4M3, 512, 384}, transposed_data{DType::E4M3, 768, 256};
    Buffer<float> scale_data{DType::F32, 4, 3};
    finegemm_quantize_weights_args args{};
    finegemm_quantize_options options{sizeof(finegemm_quantize_options), 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    QuantizeWeightsCall() {
        for (int64_t r = 0; r < 512; ++r)
            for (int64_t c = 0; c < 384; ++c) x_data.at(r, c) = static_cast<float>(r - c);
        const auto halves = [](Matrix both) {
            both.rows /= 2;
            return c_stack(ConstStack{both, 2, both.rows * both.row_stride});
        };
        args = {.x = halves(x_data.view()),
                .q = halves(q_data.view()),
                .scales = halves(scale_data.view()),
                .transposed = halves(transposed_data.view())};
    }
    int32_t run(finegemm_context* context) { return finegemm_quantize_weights(context, &args, &options, &error); }
};

/// x is [256, 384] f32 in two groups, its columns become q [384, 512]; with rows.
struct QuantizeColumnsCall {
    Buffer<float> x_data{DType::F32, 256, 384};
    Buffer<uint8_t> q_data{DType::E4M3, 384, 528}, row_q_data{DType::E4M3, 256, 384};
    Buffer<float> scale_data{DType::F32, 384, 5}, row_scale_data{DType::F32, 256, 3};
    Buffer<int32_t> numbers{DType::I32, 2, 3};
    finegemm_quantize_columns_args args{};
    finegemm_quantize_options options{sizeof(finegemm_quantize_options), 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    QuantizeColumnsCall() {
        for (int64_t r = 0; r < 256; ++r)
            for (int64_t c = 0; c < 384; ++c) x_data.at(r, c) = static_cast<float>(r - c);
        args = {.x = c_matrix(ConstMatrix(x_data.view())),
                .q = c_matrix(ConstMatrix(q_data.view())),
                .scales = c_matrix(ConstMatrix(scale_data.view())),
                .row_q = c_matrix(ConstMatrix(row_q_data.view())),
                .row_scales = c_matrix(ConstMatrix(row_scale_data.view())),
                .offsets = c_matrix(ConstMatrix(numbers.view())),
                .begins = c_matrix(ConstMatrix(numbers.view()))};
        args.q.cols = 512, args.scales.cols = 4;
        args.offsets.rows = args.begins.rows = 1;
        args.begins.data = &numbers.at(1, 0);
        numbers.at(0, 0) = 0, numbers.at(0, 1) = 100, numbers.at(0, 2) = 256;
    }
    int32_t run(finegemm_context* context) { return finegemm_quantize_columns(context, &args, &options, &error); }
};

/// codes are [2, 256, 384], all 1, with exponents of 1: scales of rows are [2, 256, 3], of blocks [2, 2, 3].
struct ReencodeCall {
    Buffer<uint8_t> code_data{DType::E4M3, 512, 384}, q_data{DType::E4M3, 512, 384};
    Buffer<int32_t> word_data{DType::UE8M0x4, 512, 3}, changed{DType::I32, 1, 1};
    Buffer<float> scale_data{DType::F32, 512, 3};
    finegemm_reencode_args args{};
    finegemm_reencode_options options{sizeof(finegemm_reencode_options), 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    ReencodeCall() {
        std::memset(code_data.data(), 0x38, size_t{512} * 384);
        std::memset(word_data.data(), 127, size_t{512} * 3 * 4);
        changed.at(0, 0) = 100;
        const auto halves = [](Matrix both) {
            both.rows /= 2;
            return c_stack(ConstStack{both, 2, both.rows * both.row_stride});
        };
        args = {.codes = halves(code_data.view()),
                .words = halves(word_data.view()),
                .q = halves(q_data.view()),
                .scales = halves(scale_data.view()),
                .changed = c_matrix(ConstMatrix(changed.view()))};
    }
    void on_gpu() {
        for (finegemm_stack* x : {&args.codes, &args.words, &args.q, &args.scales})
            x->matrix.device_type = FINEGEMM_CUDA;
        args.changed.device_type = FINEGEMM_CUDA;
    }
    int32_t run(finegemm_context* context) { return finegemm_reencode(context, &args, &options, &error); }
};

inline void set_shape(finegemm_matrix& x, int64_t rows, int64_t cols) {
    x.rows = rows, x.cols = cols, x.row_stride = cols;
}
inline void set_strides(finegemm_matrix& x, int64_t row, int64_t col) { x.row_stride = row, x.col_stride = col; }

/// f32 [300, 6], row-major, is packed to [300, 2], MN-major at multiples of 16 bytes.
struct ScaleLayoutCall {
    Buffer<float> sf_data{DType::F32, 300, 6, 1};
    Buffer<int32_t> out_data{DType::UE8M0x4, 2, 300};
    finegemm_scale_layout_args args{};
    finegemm_scale_layout_options options{sizeof(finegemm_scale_layout_options), 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    ScaleLayoutCall() {
        for (int64_t r = 0; r < 300; ++r)
            for (int64_t c = 0; c < 6; ++c) sf_data.at(r, c) = std::ldexp(1.0f, static_cast<int>(r % 200 - 20 * c));
        args.sf = {c_matrix(ConstMatrix(sf_data.view())), 1, 0};
        args.out = {c_matrix(ConstMatrix(out_data.view())), 1, 0};
        set_shape(args.out.matrix, 300, 2);
        set_strides(args.out.matrix, 1, 300);
        args.alignment = args.scale_k = 128;
        args.device_type = FINEGEMM_CPU;
    }
    int32_t run(finegemm_context* context) { return finegemm_scale_layout(context, &args, &options, &error); }
};

}  // namespace finegemm::test
