// Accuracy of a result. Layer api.
#include "workbench/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <finegemm/gemm/mx_scale.h>

#include "engine/any_address.h"
#include "ops/gemm/cpu.h"
#include "ops/gemm/finish/finishes.h"
#include "ops/gemm/finish/found_rows.h"
#include "ops/gemm/groups.h"
#include "plan/elements.h"

namespace finegemm {

namespace {

/// The codes of magnitudes, as bounds of errors count them.
std::vector<uint8_t> magnitudes(const ConstMatrix& x) {
    std::vector<uint8_t> codes(static_cast<size_t>(x.rows * x.cols * size_of(x.dtype)));
    visit_codes(x.dtype, [&]<typename Type>(Type) {
        for (int64_t r = 0; r < x.rows; ++r)
            for (int64_t c = 0; c < x.cols; ++c)
                store(codes.data(), r * x.cols + c,
                      Type::magnitude(load<typename Type::Code>(x.data, r * x.row_stride + c * x.col_stride)));
    });
    return codes;
}

/// MX scales, which are not negative, stay what they are.
std::vector<float> scale_magnitudes(const ConstMatrix& x) {
    std::vector<float> scales(static_cast<size_t>(x.rows * x.cols));
    for (int64_t r = 0; r < x.rows; ++r)
        for (int64_t c = 0; c < x.cols; ++c)
            scales[static_cast<size_t>(r * x.cols + c)] =
                is_mx(x) ? load<float>(x.data, r * x.row_stride + c * x.col_stride) : std::abs(element_of(x, r, c));
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

/// Of `rows`, to look at `most` at most. An odd step meets every place in a tile.
int64_t step_of(int64_t rows, int64_t most) { return ((rows + most - 1) / most) | 1; }

/// One product of a call, and what is added to it.
struct Product {
    GemmArgs args;
    ProductEpilogue epilogue;
};

/// Every so manieth row, at most `max_rows`: the same matrices with fewer rows and longer strides.
Product some_rows(const Product& all, int64_t max_rows) {
    auto [args, epilogue] = all;
    const int64_t step = step_of(all.args.d.rows, max_rows);
    const int64_t rows = (all.args.d.rows + step - 1) / step;
    const auto cut = [&](auto& x) { x.rows = rows, x.row_stride *= step; };
    cut(args.a), cut(args.sfa);
    plan::arguments_of<ConstStack>([&](const char*, ConstStack& x) { cut(x.matrix); }, epilogue.arguments);
    plan::arguments_of<Stack>([&](const char*, Stack& x) { cut(x.matrix); }, epilogue.arguments);
    plan::arguments_of<RowNumbers>([&](const char*, RowNumbers& x) { cut(x.rows.matrix); }, epilogue.arguments);
    cut(args.d);
    return {args, epilogue};
}

/// Bound for the rounding error of an element's sum.
double sum_bound_of(const GemmArgs& args, double absolute) {
    const int64_t k = args.a.cols;
    const int64_t length = is_mx(args.sfb) ? kMxCols : kScaleBlock;  // of what is promoted at once
    return are(is_unscaled, args.a.dtype) ? unscaled_sum_bound(absolute, k)
                                          : sum_bound(absolute, (k + length - 1) / length);
}

/// Error bound of an element of D: that of what is rounded, and of one rounding to the type of D.
double bound_of(const GemmArgs& args, double of_rounded, double exact) {
    const Rounding& rounding = find_type(args.d.dtype)->rounding;
    return of_rounded + (std::abs(exact) + of_rounded) * rounding.relative + rounding.smallest;
}

/// Turns exact sums, and the bounds of their rounding errors, into those of what is rounded to the type of D.
void finish(const ProductEpilogue& epilogue, int64_t cols, std::vector<double>& exact, std::vector<double>& bounds) {
    with_finish(epilogue.finish, [&]<typename OfFinish>() {
        const OfFinish finish(epilogue.arguments);
        for (size_t i = 0; i < exact.size(); ++i) {
            const int64_t row = static_cast<int64_t>(i) / cols, col = static_cast<int64_t>(i) % cols;
            bounds[i] = finish.bound_of(bounds[i], exact[i], row, col);
            exact[i] = finish.of(exact[i], row, col);
        }
    });
}

constexpr double kF32Overflow = find_type(DType::F32)->rounding.overflow;

double scale_of(const ConstMatrix& s, int64_t row, int64_t kb, uint32_t part) {
    const auto scale = load<float>(s.data, row * s.row_stride + kb * s.col_stride);
    return is_mx(s) ? float_of_bits(mx_scale_bits(float_bits(scale), part)) : scale;
}

/// Is a product of scales of this element beyond FP32? Blocks times it are infinite, or NaN. MX scales of B are
/// multiplied with a block first where those of A are others.
bool scales_overflow(const GemmArgs& args, int64_t row, int64_t col) {
    constexpr double kLargestBlock = 448.0 * 448 * kScaleBlock;
    const int64_t of_b = has_row_scales(args.b, args.sfb) ? col : col / kScaleBlock;
    const bool of_b_first = is_mx(args.sfb) && !is_mx(args.sfa);
    for (int64_t kb = 0; kb < args.sfa.cols; ++kb)
        for (uint32_t part = 0; part < (is_mx(args.sfb) ? kMxParts : 1); ++part) {
            const double product =
                (of_b_first ? kLargestBlock : scale_of(args.sfa, row, kb, part)) * scale_of(args.sfb, of_b, kb, part);
            if (std::abs(product) >= kF32Overflow) return true;
        }
    return false;
}

/// May element i be `d`, one of which and of `exact` is not finite? Terms of one sign reach `plus`, of the other
/// `minus`: sums on the way may be as far from zero, in FP32, and infinities of both signs are NaN together.
bool is_right(const GemmArgs& args, size_t i, double d, double exact, double absolute, double bound) {
    if (d == exact || (std::isnan(d) && std::isnan(exact))) return true;
    if (std::isfinite(d) || std::isnan(exact)) return false;
    if (std::isinf(exact)) return std::isnan(d);  // infinite scales, which the tensor cores make NaN
    const auto n = static_cast<size_t>(args.d.cols);
    if (scales_overflow(args, static_cast<int64_t>(i / n), static_cast<int64_t>(i % n))) return true;
    const double plus = (absolute + exact) / 2 + bound, minus = (absolute - exact) / 2 + bound;
    if (std::isnan(d)) return plus >= kF32Overflow && minus >= kF32Overflow;
    const double last = (d > 0 ? exact : -exact) + bound;
    return last >= find_type(args.d.dtype)->rounding.overflow || (d > 0 ? plus : minus) >= kF32Overflow;
}

/// Errors so far, after some GEMMs.
struct Tally {
    double errors = 0, values = 0;  // sums of squares
    double largest = 0, worst = 0, of_bound = 0;
    int64_t rows = 0, nan = 0, inf = 0, nan_wrong = 0, inf_wrong = 0;

    Accuracy accuracy() const {
        return {.relative_rms = values > 0 ? std::sqrt(errors / values) : 0,
                .worst = largest > 0 ? worst / largest : worst,
                .of_bound = of_bound,
                .rows = rows,
                .nan = nan,
                .inf = inf,
                .nan_wrong = nan_wrong,
                .inf_wrong = inf_wrong};
    }

    /// Counts a value that is not finite in D or exactly.
    void add_special(double d, double exact, bool right) {
        nan += std::isnan(d);
        inf += std::isinf(d);
        if (right) return;
        (std::isnan(d) || std::isnan(exact) ? nan_wrong : inf_wrong) += 1;
        of_bound = std::numeric_limits<double>::infinity();
    }
};

void add(Tally& tally, const Product& product, ThreadPool& pool) {
    const GemmArgs& args = product.args;
    const auto count = static_cast<size_t>(args.d.rows * args.d.cols);
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

    std::vector<double> bounds(count);
    for (size_t i = 0; i < count; ++i) bounds[i] = sum_bound_of(args, absolute[i]);
    finish(product.epilogue, args.d.cols, exact, bounds);
    const bool pairs = pairs_columns(product.epilogue.finish);
    if (pairs) activate(product.epilogue.arguments, args.d.cols, exact, bounds);
    const DColumns columns = plan::columns_of(product.epilogue.arguments);
    const auto n = static_cast<size_t>(pairs ? args.d.cols / 2 : args.d.cols);
    for (size_t i = 0; i < exact.size(); ++i) {
        const double bound = bounds[i];
        const auto row = static_cast<int64_t>(i / n), col = static_cast<int64_t>(i % n);
        double d = element_of(args.d, row, columns.of(static_cast<uint32_t>(col)));
        if (pairs) d *= scale_of_pair(product.epilogue.arguments, row, col);
        if (!std::isfinite(d) || !std::isfinite(exact[i])) {
            tally.add_special(
                d, exact[i],
                pairs ? std::isnan(d) && std::isnan(exact[i]) : is_right(args, i, d, exact[i], absolute[i], bound));
            continue;
        }
        const double error = std::abs(d - exact[i]);
        tally.errors += error * error;
        tally.values += exact[i] * exact[i];
        tally.largest = std::max(tally.largest, std::abs(exact[i]));
        tally.worst = std::max(tally.worst, error);
        const double most = pairs ? bound : bound_of(args, bound, exact[i]);
        if (error > 0) tally.of_bound = std::max(tally.of_bound, error / most);
    }
    tally.rows += args.d.rows;
}

/// Every so manieth row, scaled. Not of MX, whose codes are not made from values here.
std::vector<float> some_values(const Values& v, int64_t step) {
    std::vector<float> values;
    const int64_t height = v.scales.rows == v.x.rows ? 1 : kScaleBlock;
    for (int64_t r = 0; r < v.x.rows; r += step)
        for (int64_t c = 0; c < v.x.cols; ++c)
            values.push_back(element_of(v.x, r, c) *
                             (v.scales.data ? element_of(v.scales, r / height, c / kScaleBlock) : 1));
    return values;
}

/// In as many sums as a vector has lanes.
double dot(const float* x, const float* y, int64_t count) {
    constexpr int64_t kLanes = 8;
    double sums[kLanes] = {};
    for (int64_t i = 0; i < count; i += kLanes)  // K is a multiple of 16
        for (int64_t lane = 0; lane < kLanes; ++lane)
            sums[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(y[i + lane]);
    return std::reduce(std::begin(sums), std::end(sums));
}

}  // namespace

float element_of(const ConstMatrix& x, int64_t row, int64_t col) {
    const int64_t at = row * x.row_stride + col * x.col_stride;
    float value = 0;
    visit_codes(x.dtype, [&]<typename Type>(Type) { value = Type::value(load<typename Type::Code>(x.data, at)); });
    return value;
}

namespace {

/// The matrices of a stack side by side.
std::vector<uint8_t> side_by_side(const ConstStack& stack) {
    const ConstMatrix& m = stack.matrix;
    const auto width = static_cast<size_t>(m.cols * size_of(m.dtype));
    std::vector<uint8_t> all(static_cast<size_t>(stack.count * m.rows) * width);
    for (int64_t r = 0; r < m.rows; ++r)
        for (int64_t i = 0; i < stack.count; ++i)
            std::memcpy(all.data() + static_cast<size_t>(r * stack.count + i) * width,
                        static_cast<const uint8_t*>(m.data) + (i * stack.stride + r * m.row_stride) * size_of(m.dtype),
                        width);
    return all;
}

/// A sum over stacks is one product of all matrices side by side.
Accuracy accuracy_of_sum(const Call& call, int64_t max_rows) {
    const auto a = side_by_side(call.a), b = side_by_side(call.b);
    const auto joined = [](const ConstStack& stack, const std::vector<uint8_t>& all) {
        ConstMatrix m = stack.matrix;
        m.data = all.data();
        m.cols = m.row_stride = stack.count * m.cols;
        return m;
    };
    return accuracy_of({GemmArgs{joined(call.a, a), {}, joined(call.b, b), {}, call.d.matrix}, call.options}, max_rows);
}

}  // namespace

Accuracy accuracy_of(const Call& call, int64_t max_rows) {
    if (call.summed()) return accuracy_of_sum(call, max_rows);
    if (plan::takes_rows(call.epilogue()) || plan::places_rows(call.epilogue())) {
        FoundRows rows(call);
        rows.take_stored();
        return accuracy_of(rows.call(), max_rows);
    }
    const std::vector<GemmArgs> all = products_of(call);
    const std::vector<ProductEpilogue> epilogues = epilogues_of(call, all);
    std::vector<Product> products;
    for (size_t i = 0; i < all.size(); ++i)
        if (!call.of_rows() || all[i].a.cols > 0) products.push_back({all[i], epilogues[i]});
    ThreadPool pool(0);
    Tally tally;
    const auto count = static_cast<int64_t>(products.size());
    const int64_t step = (count + max_rows - 1) / max_rows,
                  share = std::max<int64_t>(1, max_rows / std::max<int64_t>(1, count));
    for (int64_t i = 0; i < count; i += step) add(tally, some_rows(products[static_cast<size_t>(i)], share), pool);
    return tally.accuracy();
}

int64_t differing_elements(const ConstMatrix& x, const ConstMatrix& y) {
    const auto bytes = [](const ConstMatrix& m, int64_t r, int64_t c) {
        return static_cast<const uint8_t*>(m.data) + (r * m.row_stride + c * m.col_stride) * size_of(m.dtype);
    };
    const auto width = static_cast<size_t>(size_of(x.dtype)), row_bytes = static_cast<size_t>(x.cols) * width;
    const bool contiguous = x.col_stride == 1 && y.col_stride == 1;
    int64_t differing = 0;
    for (int64_t r = 0; r < x.rows; ++r) {
        if (contiguous && std::memcmp(bytes(x, r, 0), bytes(y, r, 0), row_bytes) == 0) continue;
        for (int64_t c = 0; c < x.cols; ++c) differing += std::memcmp(bytes(x, r, c), bytes(y, r, c), width) != 0;
    }
    return differing;
}

double error_of_values(const ConstMatrix& d, const DColumns& columns, const Values& a, const Values& b,
                       int64_t max_rows) {
    const int64_t step = step_of(d.rows, max_rows), k = a.x.cols;
    const std::vector<float> left = some_values(a, step), right = some_values(b, 1);
    std::vector<double> errors(static_cast<size_t>(b.x.rows)), values(errors.size());
    ThreadPool(0).parallel_for(b.x.rows, [&](int64_t n) {
        const uint32_t col = columns.of(static_cast<uint32_t>(n));
        for (int64_t r = 0; r * step < d.rows; ++r) {
            const double exact = dot(&left[static_cast<size_t>(r * k)], &right[static_cast<size_t>(n * k)], k);
            const double error = element_of(d, r * step, col) - exact;
            if (!std::isfinite(error)) continue;
            errors[static_cast<size_t>(n)] += error * error;
            values[static_cast<size_t>(n)] += exact * exact;
        }
    });
    return std::sqrt(std::reduce(errors.begin(), errors.end()) / std::reduce(values.begin(), values.end()));
}

void round_to(const Matrix& to, const ConstMatrix& x) {
    visit_codes(to.dtype, [&]<typename Type>(Type) {
        if constexpr (requires { Type::rounded(0.0f); })
            for (int64_t r = 0; r < to.rows; ++r)
                for (int64_t c = 0; c < to.cols; ++c)
                    store(to.data, r * to.row_stride + c, Type::rounded(element_of(x, r, c)));
    });
}

double relative_difference(const ConstMatrix& x, const ConstMatrix& y) {
    double differences = 0, values = 0;
    for (int64_t r = 0; r < y.rows; ++r)
        for (int64_t c = 0; c < y.cols; ++c) {
            const double value = element_of(y, r, c), other = element_of(x, r, c), difference = other - value;
            if (std::isinf(value) && value == other) continue;
            differences += difference * difference;
            values += value * value;
        }
    return std::sqrt(differences / values);
}

}  // namespace finegemm
