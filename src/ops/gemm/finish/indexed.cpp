// Finish::Indexed: the check of its arguments, and what numbers of rows say. Layer engine.
#include "ops/gemm/finish/indexed.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/gemm/finish/found_rows.h"
#include "ops/gemm/groups.h"
#include "plan/reject.h"

namespace finegemm {

namespace {

int64_t row_of(const RowIndices& numbers, int64_t m, int64_t count) {
    const int64_t row = numbers.rows.data ? load<int32_t>(numbers.rows.data, m) : m;
    return row >= 0 && row < count ? row : -1;
}

/// Numbers that say which row is meant. `named`: by which of them; null where several may name one.
void check_row_indices(const char* name, const RowIndices& numbers, int64_t count, std::vector<int64_t>* named) {
    for (int64_t m = 0; m < numbers.rows.rows; ++m) {
        const auto row = load<int32_t>(numbers.rows.data, m);
        if (row < -1 || row >= count)
            reject(name, "[{}] is {}, must be from 0 to {}, or -1 for none; look at what computed it", m, row,
                   count - 1);
        if (!named || row < 0) continue;
        int64_t& before = (*named)[static_cast<size_t>(row)];
        if (before >= 0)
            reject(name,
                   "[{}] is {}, as [{}] is: a row of d is that of one row of the product; look at what computed it", m,
                   row, before);
        before = m;
    }
}

}  // namespace

void Indexed::check(const Call& call) {
    const char* const name = plan::first_given(call.epilogue());
    if (call.stacked())
        reject(name,
               "is given, but groups have matrices of their own (masks, whole), must share one; pass offsets, indices "
               "or prefix_sums, or leave it out");
    if (call.a.matrix.rows == 0 && call.rows() > 0)
        reject("a", "has no rows, must have some where rows_of_a has {} numbers; pass the rows that they are of",
               call.rows());
}

/// A product rounds once.
double Indexed::bound_of(double bound, double exact, int64_t row, int64_t) const {
    if (!factors.data) return bound;
    const double by = std::abs(double{factor(row)});
    return by * bound + by * (std::abs(exact) + bound) * 0x1p-24 + 0x1p-149;
}

void check_found_rows(const Call& call) {
    const Epilogue& x = call.epilogue();
    std::vector<int64_t> named(plan::places_rows(x) ? static_cast<size_t>(call.d.matrix.rows) : 0, -1);
    check_row_indices("rows_of_a", x.rows_of_a, call.a.matrix.rows, nullptr);
    check_row_indices("rows_of_d", x.rows_of_d, call.d.matrix.rows, &named);
}

int64_t row_of_a(const Call& call, int64_t m) { return row_of(call.epilogue().rows_of_a, m, call.a.matrix.rows); }
int64_t row_of_d(const Call& call, int64_t m) { return row_of(call.epilogue().rows_of_d, m, call.d.matrix.rows); }

namespace {

/// Row `from` of a matrix, whatever its strides.
void copy_row(const ConstMatrix& x, int64_t from, uint8_t* to) {
    const int64_t size = size_of(x.dtype);
    const auto* const row = static_cast<const uint8_t*>(x.data) + from * x.row_stride * size;
    if (x.col_stride == 1 || x.cols == 1) std::memcpy(to, row, static_cast<size_t>(x.cols * size));
    else
        for (int64_t c = 0; c < x.cols; ++c)
            std::memcpy(to + c * size, row + c * x.col_stride * size, static_cast<size_t>(size));
}

}  // namespace

FoundRows::FoundRows(const Call& call)
    : call_(call),
      groups_(rows_by_group(row_layout_of(call))),
      a_{DType::E4M3, call.rows(), call.a.matrix.cols},
      sfa_{DType::F32, call.rows(), call.sfa.matrix.cols},
      product_{call.d.matrix.dtype, call.rows(), call.d.matrix.cols},
      options_(call.options) {
    for (const auto& [group, rows] : groups_)
        for (int64_t m = rows.begin; group >= 0 && m < rows.end; ++m) {
            const int64_t from = row_of_a(call, m);
            if (from < 0) continue;
            copy_row(call.a.matrix, from, a_.row(m));
            copy_row(call.sfa.matrix, from, sfa_.row(m));
        }
    options_.epilogue = {};
    if (!call.stores_sums) options_.epilogue.factors_of_rows = call.epilogue().factors_of_rows;
    options_.config.clear();  // all kernels for groups of rows have the same order of sums
}

Call FoundRows::call() {
    return {GroupedGemmArgs{{a_.view()}, {sfa_.view()}, call_.b, call_.sfb, {product_.view()}, call_.groups}, options_};
}

template <typename Visit>
void FoundRows::for_stored(const Visit& visit) {
    const Matrix& d = call_.d.matrix;
    const bool pads = !plan::places_rows(call_.epilogue());  // rows of padding become zero
    for (const auto& [group, rows] : groups_)
        for (int64_t m = rows.begin; (group >= 0 || pads) && m < rows.end; ++m)
            if (const int64_t to = row_of_d(call_, m); to >= 0)
                visit(m, product_.row(m), static_cast<uint8_t*>(d.data) + to * d.row_stride * size_of(d.dtype));
}

/// What combine makes of row m, the only one of a token.
void FoundRows::add_up(int64_t m) {
    const ConstMatrix& factors = call_.epilogue().factors_of_rows.rows.matrix;
    const float factor = factors.data ? load<float>(factors.data, m * factors.row_stride) : 1;
    auto* const row = reinterpret_cast<uint16_t*>(product_.row(m));
    for (int64_t c = 0; c < product_.cols; ++c) row[c] = bf16_of_float(0.0f + factor * float_of_bf16(row[c]));
}

void FoundRows::store() {
    for_stored([&](int64_t m, const uint8_t* of_product, uint8_t* of_d) {
        if (call_.stores_sums) add_up(m);
        std::memcpy(of_d, of_product, static_cast<size_t>(product_.row_bytes()));
    });
}

void FoundRows::take_stored() {
    for_stored([&](int64_t, uint8_t* of_product, const uint8_t* of_d) {
        std::memcpy(of_product, of_d, static_cast<size_t>(product_.row_bytes()));
    });
}

}  // namespace finegemm
