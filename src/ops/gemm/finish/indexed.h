// Finish::Indexed: rows of A and of D are found by numbers, and each may have a factor. Layer engine.
#pragma once

#include "engine/any_address.h"
#include "ops/gemm/finish/product_alone.h"

namespace finegemm {

/// ProductAlone says what the members are for. On the CPU rows are copied before and after (cpu_indexed).
struct Indexed {
    static constexpr Finish kFinish = Finish::Indexed;

    static void check(const Call& call);

    template <typename FillMaps>
    static IndexedParams params(const Call& call, const FillMaps&) {
        const Epilogue& x = call.epilogue();
        const ConstMatrix& factors = x.row_factors.rows.matrix;
        return {.a = static_cast<const uint8_t*>(call.a.matrix.data),
                .a_row_stride = call.a.matrix.row_stride,
                .a_rows = static_cast<const int32_t*>(x.a_rows.rows.data),
                .d_rows = static_cast<const int32_t*>(x.d_rows.rows.data),
                .a_count = static_cast<uint32_t>(call.a.matrix.rows),
                .d_count = static_cast<uint32_t>(call.d.matrix.rows),
                .k = static_cast<uint32_t>(call.a.matrix.cols),
                .factors = static_cast<const float*>(factors.data),
                .factor_stride = factors.row_stride};
    }

    explicit Indexed(const Epilogue& x) : factors(x.row_factors.rows.matrix) {}

    template <typename T>
    T of(T sum, int64_t row, int64_t) const {
        return factors.data ? factor(row) * sum : sum;
    }
    double bound_of(double bound, double exact, int64_t row, int64_t col) const;

private:
    float factor(int64_t row) const { return load<float>(factors.data, row * factors.row_stride); }

    ConstMatrix factors;  // of the rows of the product; without a pointer: none
};

/// Row `m` of A, and of D, as the numbers of a call on the CPU say; -1: none.
int64_t row_of_a(const Call& call, int64_t m);
int64_t row_of_d(const Call& call, int64_t m);

}  // namespace finegemm
