// Finish::Indexed: rows of A and of D are found by numbers, and each may have a factor. Layer engine.
#pragma once

#include <utility>

#include "engine/any_address.h"
#include "ops/gemm/finish/product_alone.h"

namespace finegemm {

/// Layers over ranks have addresses of rows where a caller has their numbers (IndexedParams).
inline bool holds_addresses(const RowIndices& rows) { return rows.rows.dtype == DType::I64; }
inline Epilogue stored_at(const RowIndices& addresses) { return {.rows_of_d = addresses}; }
/// `tokens`, [1, M]: which one has each row of a product. `weights`, [1, M]: of rows, or without a pointer.
inline Epilogue stored_by_token(ConstMatrix tokens, ConstMatrix weights) {
    for (ConstMatrix* const x : {&tokens, &weights})
        std::swap(x->rows, x->cols), std::swap(x->row_stride, x->col_stride);
    return {.rows_of_d = {tokens}, .factors_of_rows = {{weights}}};
}

/// ProductAlone says what the members are for. On the CPU rows are copied before and after (cpu_found_rows).
struct Indexed {
    static constexpr Finish kFinish = Finish::Indexed;

    static void check(const Call& call);

    template <typename FillMaps>
    static IndexedParams params(const Call& call, const FillMaps&) {
        const Epilogue& x = call.epilogue();
        const ConstMatrix &factors = x.factors_of_rows.rows.matrix, &of_d = x.rows_of_d.rows;
        const bool addresses = holds_addresses(x.rows_of_d);
        return {.a = static_cast<const uint8_t*>(call.a.matrix.data),
                .a_row_stride = call.a.matrix.row_stride,
                .numbers_of_a = static_cast<const int32_t*>(x.rows_of_a.rows.data),
                .numbers_of_d = addresses ? nullptr : static_cast<const int32_t*>(of_d.data),
                .addresses_of_d = addresses ? static_cast<const uint64_t*>(of_d.data) : nullptr,
                .a_count = static_cast<uint32_t>(call.a.matrix.rows),
                .d_count = static_cast<uint32_t>(call.d.matrix.rows),
                .k = static_cast<uint32_t>(call.a.matrix.cols),
                .factors = static_cast<const float*>(factors.data),
                .factor_stride = factors.row_stride,
                .sums = call.stores_sums};
    }

    explicit Indexed(const Epilogue& x) : factors(x.factors_of_rows.rows.matrix) {}

    template <typename T>
    T of(T sum, int64_t row, int64_t) const {
        return factors.data ? factor(row) * sum : sum;
    }
    double bound_of(double bound, double exact, int64_t row, int64_t col) const;

private:
    float factor(int64_t row) const { return load<float>(factors.data, row * factors.row_stride); }

    ConstMatrix factors;  // of the rows of the product; without a pointer: none
};

}  // namespace finegemm
