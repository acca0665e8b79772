// Finish::Affine: D is alpha * the product + beta * C + bias, rounded once. Layer engine.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <finegemm/core/fp8.h>
#include <finegemm/gemm/params.h>

#include "engine/any_address.h"
#include "ops/gemm/call.h"

namespace finegemm {

/// ProductAlone says what the members are for.
struct Affine {
    static constexpr Finish kFinish = Finish::Affine;

    static void check(const Call& call);

    template <typename FillMaps>
    static AffineParams params(const Call& call, const FillMaps& fill_maps) {
        const Affine x(call.epilogue());
        AffineParams params{
            .c = {}, .bias = static_cast<const float*>(x.bias), .alpha = x.alpha, .beta = x.beta, .adds_c = x.adds_c};
        if (x.adds_c) fill_maps(params.c, "c", call.epilogue().c);
        return params;
    }

    explicit Affine(const Epilogue& x)
        : adds_c(plan::adds_c(x)),
          alpha(x.alpha),
          beta(adds_c ? x.beta.value_or(1) : 0),
          c(x.c.matrix),
          bias(x.bias.data) {}

    /// In the steps of AffineEpilogue.
    template <typename T>
    T of(T sum, int64_t row, int64_t col) const {
        T x = alpha * sum;
        if (adds_c) {
            if constexpr (std::is_same_v<T, float>) x = std::fma(beta, c_at(row, col), x);
            else x += static_cast<T>(beta) * c_at(row, col);
        }
        return bias ? x + load<float>(bias, col) : x;
    }
    double bound_of(double bound, double exact, int64_t row, int64_t col) const;

private:
    float c_at(int64_t row, int64_t col) const;

    bool adds_c;
    float alpha, beta;
    ConstMatrix c;     // as large as the product's D; unused where `adds_c` is not set
    const void* bias;  // f32, of each column, or null
};

}  // namespace finegemm
