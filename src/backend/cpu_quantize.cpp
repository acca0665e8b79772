// Quantisation on the CPU. Layer backend.
#include "backend/cpu_quantize.h"

#include <algorithm>

#include <finegemm/core/quantize.h>

namespace finegemm {

namespace {

float element(const ConstMatrix& x, int64_t index) {
    switch (x.dtype) {
        case DType::BF16: return float_of_bf16(static_cast<const uint16_t*>(x.data)[index]);
        case DType::F16: return float_of_f16(static_cast<const uint16_t*>(x.data)[index]);
        default: return static_cast<const float*>(x.data)[index];
    }
}

/// One block: rows [row, row + rows) of the 128 columns from `col`.
void quantize_block(const ConstMatrix& x, const Matrix& q, float* scale, int64_t row, int64_t rows, int64_t col, bool power_of_two) {
    constexpr int64_t kWidth = kScaleBlock;
    const int64_t cols = std::min(kWidth, x.cols - col);
    float values[kWidth * kWidth];
    uint32_t largest = 0;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) {
            const float v = values[r * kWidth + c] = element(x, (row + r) * x.row_stride + col + c);
            largest = std::max(largest, finite_magnitude(v));
        }
    *scale = block_scale(largest, power_of_two);
    const float inverse = inverse_scale(*scale);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
            static_cast<uint8_t*>(q.data)[(row + r) * q.row_stride + col + c] = quantize_element(values[r * kWidth + c], inverse);
}

}  // namespace

void cpu_quantize(ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales, const QuantizeOptions& options,
                  ThreadPool& pool) {
    const int64_t height = shape == ScaleShape::Rows ? 1 : kScaleBlock;
    const int64_t bands = (x.rows + height - 1) / height;
    pool.parallel_for(bands, [&](int64_t band) {
        const int64_t row = band * height;
        for (int64_t kb = 0; kb * kScaleBlock < x.cols; ++kb)
            quantize_block(x, q, static_cast<float*>(scales.data) + band * scales.row_stride + kb * scales.col_stride, row,
                           std::min(height, x.rows - row), kb * kScaleBlock, options.power_of_two_scales);
    });
}

}  // namespace finegemm
