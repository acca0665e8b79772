// Finish::Indexed: the check of its arguments, and what numbers of rows say. Layer engine.
#include "ops/gemm/finish/indexed.h"

#include <cmath>
#include <vector>

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

}  // namespace finegemm
