// Finish::Affine: the check of its arguments, C, and how wrong it may be. Layer engine.
#include "ops/gemm/finish/affine.h"

#include "plan/reject.h"

namespace finegemm {

namespace {

void check_factor(const char* name, float factor) {
    if (!std::isfinite(factor)) reject(name, "is {}, must be finite; look at what computed it", factor);
}

}  // namespace

void Affine::check(const Call& call) {
    const Epilogue& x = call.epilogue();
    check_factor("alpha", x.alpha);
    check_factor("beta", x.beta.value_or(1));
    if (plan::needs_c(x) && !plan::is_given(x.c, {}))
        reject("beta", "is {}, but there is no c that it could multiply; pass c, or leave beta out", *x.beta);
}

float Affine::c_at(int64_t row, int64_t col) const {
    const int64_t at = row * c.row_stride + col;
    if (c.dtype == DType::F32) return load<float>(c.data, at);
    const auto half = load<uint16_t>(c.data, at);
    return c.dtype == DType::F16 ? float_of_f16(half) : float_of_bf16(half);
}

/// A product and two additions round once each, where docs/numerics.md has them ("Alpha, beta, C and bias").
double Affine::bound_of(double bound, double exact, int64_t row, int64_t col) const {
    const double factor = std::abs(alpha), sum = factor * (std::abs(exact) + bound);
    const double of_c = adds_c ? std::abs(double{beta} * c_at(row, col)) : 0;
    const double of_bias = bias ? std::abs(load<float>(bias, col)) : 0;
    return factor * bound + (sum + of_c + of_bias) * std::expm1(3 * 0x1p-24) + 3 * 0x1p-149;
}

}  // namespace finegemm
