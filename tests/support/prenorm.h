// Random products before a norm, with guards around what they have, and what is exact of them. Layer tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ops/prenorm/call.h"
#include "ops/prenorm/cpu.h"
#include "support/matrix.h"
#include "support/random.h"
#include "workbench/prenorm_bound.h"

namespace finegemm::test {

/// The definition once more, in double: a number with 11 significant bits, the nearest one and of two the even.
inline double tf32(double x) {
    if (x == 0 || !std::isfinite(x)) return x;
    const double unit = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 10);
    const double rounded = std::nearbyint(x / unit) * unit;
    return std::abs(rounded) < 0x1p128 ? rounded : std::copysign(std::numeric_limits<double>::infinity(), x);
}

struct PrenormWish {
    int64_t rows, cols, k, slices;
};

/// Padding of A and B is NaN; D and the sums of squares hold a pattern until they are written. Slices of D may be one
/// behind the other, or rows of all of them.
struct PrenormCase {
    static constexpr uint32_t kPattern = 0xa5a5a5a5;

    int64_t rows, cols, k, slices;
    Buffer<uint16_t> a;
    Buffer<float> b, d, sqrsum;
    int64_t row_stride, slice_stride;
    PrenormOptions options{};

    static PrenormWish any(Random& r) {
        return {r.any(0, r.one_in(4) ? 150 : 20), r.one_of<int64_t>({8, 16, 24, 24, 32}),
                64 * (r.one_in(20) ? r.any(20, 120) : r.any(1, 8)), r.one_in(3) ? 1 : r.any(1, 20)};
    }
    explicit PrenormCase(Random& r) : PrenormCase(r, any(r)) {}
    PrenormCase(Random& r, const PrenormWish& w, bool of_slices = true)
        : rows(w.rows),
          cols(w.cols),
          k(w.k),
          slices(w.slices),
          a(DType::BF16, rows, k, r.one_in(2) ? 8 * r.any(1, 9) : 0),
          b(DType::F32, cols, k, r.one_in(2) ? 4 * r.any(1, 9) : 0),
          d(DType::F32, 1, slices * (rows * (cols + 8) + 8)),
          sqrsum(DType::F32, slices, rows, r.one_in(2) ? r.any(1, 9) : 0),
          row_stride(cols + 4 * r.any(0, 2)),
          slice_stride(rows * row_stride + 4 * r.any(0, 2)) {
        if (of_slices && r.one_in(4)) slice_stride = row_stride, row_stride *= slices;
        const float size_a = size(r), size_b = size(r);
        fill(a, k, [&] { return bf16_of_float(r.one_in(40) ? 0.0f : r.normal(size_a)); }, uint16_t{0x7fc0});
        fill(b, k, [&] { return r.one_in(40) ? 0.0f : r.normal(size_b); }, std::numeric_limits<float>::quiet_NaN());
    }

    PrenormCall call() {
        Matrix slice = d.view();
        slice.rows = rows, slice.cols = cols, slice.row_stride = row_stride;
        return {a.view(), b.view(), {slice, slices, slice_stride}, sqrsum.view(), options};
    }
    std::string text() { return text_of(call()); }
    double a_at(int64_t m, int64_t i) { return static_cast<double>(float_of_bf16(a.at(m, i))); }
    float& d_at(int64_t s, int64_t m, int64_t n) { return d.at(0, s * slice_stride + m * row_stride + n); }

    double sum(int64_t m, int64_t n) {
        double sum = 0;
        for (int64_t s = 0; s < slices; ++s) sum += static_cast<double>(d_at(s, m, n));
        return sum;
    }
    double sum_of_squares(int64_t m) {
        double sum = 0;
        for (int64_t s = 0; s < slices; ++s) sum += static_cast<double>(sqrsum.at(s, m));
        return sum;
    }
    /// What a product, and the sum of squares for n = cols, should be, and what its terms are in magnitude.
    struct Truth {
        double sum = 0, absolute = 0;
    };
    Truth truth(int64_t m, int64_t n) {
        Truth t;
        for (int64_t i = 0; i < k; ++i) {
            const double x = a_at(m, i) * (n == cols ? a_at(m, i) : tf32(static_cast<double>(b.at(n, i))));
            t.sum += x, t.absolute += std::abs(x);
        }
        return t;
    }

    /// What is wrong with the result: empty where every element of every slice is written, and nothing else is, and
    /// each sum is as near to the exact one as the bound asks. `worst`: the largest error as a share of its bound.
    std::string faults(double* worst = nullptr) {
        if (!sqrsum.surroundings_intact() || !d.surroundings_intact()) return text() + ": wrote beyond its slices";
        std::vector<bool> owned(static_cast<size_t>(d.view().cols));
        for (int64_t s = 0; s < slices; ++s)
            for (int64_t m = 0; m < rows; ++m) {
                if (float_bits(sqrsum.at(s, m)) == kPattern) return fmt::format("{}: sqrsum {}, {}", text(), s, m);
                for (int64_t n = 0; n < cols; ++n) {
                    owned[static_cast<size_t>(s * slice_stride + m * row_stride + n)] = true;
                    if (float_bits(d_at(s, m, n)) == kPattern) return fmt::format("{}: d {}, {}, {}", text(), s, m, n);
                }
            }
        for (size_t i = 0; i < owned.size(); ++i)
            if (!owned[i] && float_bits(d.data()[i]) != kPattern) return fmt::format("{}: wrote to d at {}", text(), i);
        for (int64_t m = 0; m < rows; ++m)
            for (int64_t n = 0; n <= cols; ++n) {
                const Truth t = truth(m, n);
                const double found = n < cols ? sum(m, n) : sum_of_squares(m);
                const double bound = n < cols ? prenorm_bound(t.absolute, k) : prenorm_squares_bound(t.sum, k);
                const double share = std::abs(found - t.sum) / bound;
                if (!(share <= 1))
                    return fmt::format("{}: {}, {} is {}, not {}, {} of the bound", text(), m, n, found, t.sum, share);
                if (worst) *worst = std::max(*worst, share);
            }
        return "";
    }

private:
    static float size(Random& r) { return std::exp2(static_cast<float>(r.one_in(4) ? r.any(-55, 45) : r.any(-3, 3))); }
    template <typename T, typename Value>
    static void fill(Buffer<T>& x, int64_t cols, const Value& value, T padding) {
        const Matrix view = x.view();
        for (int64_t r = 0; r < view.rows; ++r)
            for (int64_t c = 0; c < view.row_stride; ++c) x.at(r, c) = c < cols ? value() : padding;
    }
};

}  // namespace finegemm::test
