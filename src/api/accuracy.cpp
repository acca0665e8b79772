// How good a result is. Layer api.
#include "api/accuracy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <finegemm/core/fp8.h>

#include "backend/cpu_gemm.h"

namespace finegemm {

namespace {

/// The codes of magnitudes, those of subnormals raised to 2^-6: what the error bound is about.
std::vector<uint8_t> magnitudes(const ConstMatrix& x) {
    std::vector<uint8_t> codes(static_cast<size_t>(x.rows * x.cols));
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t c = 0; c < x.cols; ++c) {
            const uint8_t code = static_cast<const uint8_t*>(x.data)[r * x.row_stride + c] & 0x7f;
            codes[static_cast<size_t>(r * x.cols + c)] = code > 0 && code < 8 ? uint8_t{8} : code;
        }
    return codes;
}

std::vector<float> scale_magnitudes(const ConstMatrix& x) {
    std::vector<float> scales(static_cast<size_t>(x.rows * x.cols));
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t c = 0; c < x.cols; ++c)
            scales[static_cast<size_t>(r * x.cols + c)] =
                std::abs(static_cast<const float*>(x.data)[r * x.row_stride + c * x.col_stride]);
    return scales;
}

/// The matrix `like` with other elements, row after row.
template <typename T>
ConstMatrix dense(const std::vector<T>& elements, ConstMatrix like) {
    like.data = elements.data();
    like.row_stride = like.cols;
    like.col_stride = 1;
    return like;
}

}  // namespace

Accuracy accuracy_of(const GemmArgs& all, int64_t max_rows) {
    // Every step-th row: the same matrices with fewer rows and longer strides.
    GemmArgs args = all;
    // An odd step meets every place in a tile.
    const int64_t step = ((all.d.rows + max_rows - 1) / max_rows) | 1;
    const int64_t rows = (all.d.rows + step - 1) / step;
    for (ConstMatrix* x : {&args.a, &args.sfa}) x->rows = rows, x->row_stride *= step;
    args.d.rows = rows;
    args.d.row_stride *= step;

    ThreadPool pool(0);
    const auto count = static_cast<size_t>(rows * args.d.cols);
    std::vector<double> exact(count), absolute(count);
    cpu_gemm_exact(args, pool, exact.data());
    const auto a = magnitudes(args.a), b = magnitudes(args.b);
    const auto sfa = scale_magnitudes(args.sfa), sfb = scale_magnitudes(args.sfb);
    GemmArgs positive = args;
    positive.a = dense(a, args.a);
    positive.b = dense(b, args.b);
    positive.sfa = dense(sfa, args.sfa);
    positive.sfb = dense(sfb, args.sfb);
    cpu_gemm_exact(positive, pool, absolute.data());

    Accuracy result{.rows = rows};
    double errors = 0, values = 0, largest = 0;
    const int64_t k_blocks = (args.a.cols + kScaleBlock - 1) / kScaleBlock;
    for (size_t i = 0; i < count; ++i) {
        const auto n = static_cast<size_t>(args.d.cols);
        const auto at = static_cast<int64_t>(i / n) * args.d.row_stride + static_cast<int64_t>(i % n);
        const double error = std::abs(float_of_bf16(static_cast<const uint16_t*>(args.d.data)[at]) - exact[i]);
        const bool lost = std::isnan(error) && !std::isnan(exact[i]);
        errors += error * error;
        values += exact[i] * exact[i];
        largest = std::max(largest, std::abs(exact[i]));
        result.worst = std::max(result.worst, error);
        const double share =
            lost ? std::numeric_limits<double>::infinity() : error / error_bound(absolute[i], exact[i], k_blocks);
        result.of_bound = std::max(result.of_bound, share);
    }
    result.relative_rms = values > 0 ? std::sqrt(errors / values) : 0;
    result.worst = largest > 0 ? result.worst / largest : result.worst;
    return result;
}

double relative_difference(const ConstMatrix& x, const ConstMatrix& y) {
    double differences = 0, values = 0;
    for (int64_t r = 0; r < y.rows; ++r)
        for (int64_t c = 0; c < y.cols; ++c) {
            const auto at = [&](const ConstMatrix& m) {
                return float_of_bf16(static_cast<const uint16_t*>(m.data)[r * m.row_stride + c]);
            };
            const double value = at(y), difference = at(x) - value;
            differences += difference * difference;
            values += value * value;
        }
    return std::sqrt(differences / values);
}

}  // namespace finegemm
