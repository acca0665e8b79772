// Finish::Indexed: the check of its arguments, and what numbers of rows say. Layer engine.
#include "ops/gemm/finish/indexed.h"

#include <cmath>

#include "plan/reject.h"

namespace finegemm {

namespace {

int64_t row_of(const RowIndices& numbers, int64_t m, int64_t count) {
    const int64_t row = numbers.rows.data ? load<int32_t>(numbers.rows.data, m) : m;
    return row >= 0 && row < count ? row : -1;
}

}  // namespace

void Indexed::check(const Call& call) {
    const char* const name = plan::first_given(call.epilogue());
    if (call.stacked())
        reject(name,
               "is given, but groups have matrices of their own (masks, whole), must share one; pass offsets, indices "
               "or prefix_sums, or leave it out");
    if (call.a.matrix.rows == 0 && call.rows() > 0)
        reject("a", "has no rows, must have some where a_rows has {} numbers; pass the rows that they are of",
               call.rows());
}

/// A product rounds once.
double Indexed::bound_of(double bound, double exact, int64_t row, int64_t) const {
    if (!factors.data) return bound;
    const double by = std::abs(double{factor(row)});
    return by * bound + by * (std::abs(exact) + bound) * 0x1p-24 + 0x1p-149;
}

int64_t row_of_a(const Call& call, int64_t m) { return row_of(call.epilogue().a_rows, m, call.a.matrix.rows); }
int64_t row_of_d(const Call& call, int64_t m) { return row_of(call.epilogue().d_rows, m, call.d.matrix.rows); }

}  // namespace finegemm
