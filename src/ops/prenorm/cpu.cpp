// The product before a norm on the CPU: BF16 products of A with two columns for each of B. Layer engine.
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

/// B as [2 N, K] in bf16: the first columns of all pairs, then the second ones.
std::vector<uint16_t> columns_of(const ConstMatrix& b) {
    std::vector<uint16_t> columns(static_cast<size_t>(2 * b.rows * b.cols));
    uint16_t *first = columns.data(), *second = first + b.rows * b.cols;
    for (int64_t n = 0; n < b.rows; ++n)
        for (int64_t k = 0; k < b.cols; ++k) {
            const Tf32Pair pair = tf32_pair(load<float>(b.data, n * b.row_stride + k));
            *first++ = static_cast<uint16_t>(pair.first >> 16), *second++ = static_cast<uint16_t>(pair.second >> 16);
        }
    return columns;
}

/// fma(x, x, sum): doubles hold the square, and all of the sum that can matter to its rounding. A processor's own fma
/// is not in every build.
float plus_square(float sum, double x) { return static_cast<float>(static_cast<double>(sum) + x * x); }

float sum_of_squares(const ConstMatrix& a, int64_t row) {
    constexpr int64_t kHalf = kPrenormBlock / 2;
    float partial[kPrenormPartials] = {};
    for (int64_t block = row * a.row_stride; block < row * a.row_stride + a.cols; block += kPrenormBlock)
        for (int64_t i = 0; i < kHalf; ++i)
            for (const int64_t k : {i, kHalf + i}) {  // of different partial sums
                float& sum = partial[prenorm_partial(static_cast<uint32_t>(k))];
                sum = plus_square(sum, static_cast<double>(float_of_bf16(load<uint16_t>(a.data, block + k))));
            }
    return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

}  // namespace

void run_on_cpu(const PrenormCall& call, ThreadPool& pool) {
    static constexpr float kOne = 1;
    const int64_t n = call.cols(), k = call.k();
    const std::vector<uint16_t> columns = columns_of(call.b);
    const auto ones = [](int64_t rows) { return ConstMatrix{&kOne, DType::F32, rows, 1, 0, 0}; };
    const GemmArgs args{.a = call.a,
                        .sfa = ones(call.rows()),
                        .b = {columns.data(), DType::BF16, 2 * n, k, k},
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
            const float* of_row = &sums[static_cast<size_t>(r * kCpuTileCols)];
            for (int64_t s = 0; s < call.slices(); ++s) {
                const int64_t to = s * call.d.stride + row * d.row_stride;
                for (int64_t c = 0; c < n; ++c) store(d.data, to + c, s == 0 ? of_row[c] + of_row[n + c] : 0.0f);
                store(call.sqrsum.data, s * call.sqrsum.row_stride + row, s == 0 ? sum_of_squares(call.a, row) : 0.0f);
            }
        }
    };
    pool.parallel_for((call.rows() + at_once - 1) / at_once, task, call.options.poll);
}

}  // namespace finegemm
