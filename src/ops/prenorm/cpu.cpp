// The product before a norm on the CPU: BF16 products of A with both parts of B. Layer engine.
#include "ops/prenorm/cpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <finegemm/core/fp8.h>
#include <finegemm/prenorm/arithmetic.h>

#include "engine/any_address.h"
#include "ops/gemm/cpu_tiles.h"
#include "plan/elements.h"

namespace finegemm {

namespace {

/// B as [2 N, K] in bf16: high parts, and behind them low parts.
std::vector<uint16_t> parts_of(const ConstMatrix& b) {
    std::vector<uint16_t> parts(static_cast<size_t>(2 * b.rows * b.cols));
    uint16_t *high = parts.data(), *low = high + b.rows * b.cols;
    for (int64_t n = 0; n < b.rows; ++n)
        for (int64_t k = 0; k < b.cols; ++k) {
            const PrenormParts x = prenorm_parts(load<float>(b.data, n * b.row_stride + k));
            *high++ = x.high, *low++ = x.low;
        }
    return parts;
}

/// In double: a row is not long enough for its rounding to reach the one to f32.
float square_sum(const ConstMatrix& a, int64_t row) {
    double sum = 0;
    for (int64_t k = 0; k < a.cols; ++k) {
        const double x = Codes<DType::BF16>::value(load<uint16_t>(a.data, row * a.row_stride + k));
        sum += x * x;
    }
    return static_cast<float>(sum);
}

}  // namespace

void run_on_cpu(const PrenormCall& call, ThreadPool& pool) {
    static constexpr float kOne = 1;
    const int64_t n = call.cols(), k = call.k();
    const std::vector<uint16_t> parts = parts_of(call.b);
    const auto ones = [](int64_t rows) { return ConstMatrix{&kOne, DType::F32, rows, 1, 0, 0}; };
    const GemmArgs args{.a = call.a,
                        .sfa = ones(call.rows()),
                        .b = {parts.data(), DType::BF16, 2 * n, k, k},
                        .sfb = ones(2 * n),
                        .d = {}};
    // As many rows at once as take at most about 0.1 s: a call ends between them.
    const int64_t at_once = std::clamp<int64_t>((int64_t{1} << 24) / k, 6, 96);
    const Matrix& d = call.d.matrix;
    const auto task = [&](int64_t i) {
        const int64_t first = i * at_once, count = std::min(at_once, call.rows() - first);
        std::vector<float> sums(static_cast<size_t>(count * kCpuTileCols));
        fast_tile(CpuTile{args, first, count, 0, 2 * n}, sums.data());
        for (int64_t r = 0; r < count; ++r) {
            const int64_t row = first + r;
            for (int64_t s = 0; s < call.slices(); ++s) {
                for (int64_t c = 0; c < n; ++c) {
                    const float* of_row = &sums[static_cast<size_t>(r * kCpuTileCols)];
                    store(d.data, s * call.d.stride + row * d.row_stride + c,
                          s == 0 ? prenorm_sum(of_row[c], of_row[n + c]) : 0.0f);
                }
                store(call.sqrsum.data, s * call.sqrsum.row_stride + row, s == 0 ? square_sum(call.a, row) : 0.0f);
            }
        }
    };
    pool.parallel_for((call.rows() + at_once - 1) / at_once, task, call.options.poll);
}

double prenorm_bound(double absolute, int64_t k) {
    return absolute * std::expm1(static_cast<double>(k + k / kScaleBlock + 16) * 0x1p-24) +
           static_cast<double>(k) * 0x1p-125;
}

}  // namespace finegemm
