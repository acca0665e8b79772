// The tensor cores' product of two split scales. Layer engine.
#include "ops/gemm/cpu_scale_factors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <finegemm/gemm/split_scale.h>

namespace finegemm {

namespace {

constexpr int32_t kFraction = 25;         // bits that an addend keeps below the largest exponent
constexpr int32_t kLeastExponent = -133;  // that counts as the largest
constexpr int32_t kProductFraction = 14;  // bits of a product of two mantissas

/// 2^exponent, exactly; of any that a sum of products has.
double power_of_two(int32_t exponent) { return std::bit_cast<double>(static_cast<int64_t>(exponent + 1023) << 52); }

float truncated_to_float(double x) {
    if (std::abs(x) >= 0x1p128) return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(x));
    const auto nearest = static_cast<float>(x);
    return std::abs(static_cast<double>(nearest)) > std::abs(x) ? float_of_bits(float_bits(nearest) - 1) : nearest;
}

}  // namespace

FactorOperand factor_operand(float scale) {
    const auto [high, middle, low] = scale_parts(scale);
    FactorOperand operand{.mantissa = {}, .exponent = {}, .finite = std::isfinite(scale)};
    for (int i = 0; const float part : {high, middle, low}) {
        const uint32_t bits = float_bits(part);
        const auto biased = static_cast<int32_t>(bits >> 23 & 255), fraction = static_cast<int32_t>(bits >> 16 & 127);
        const int32_t magnitude = biased > 0 ? fraction + 128 : fraction;
        operand.mantissa[i] = bits >> 31 ? -magnitude : magnitude;
        operand.exponent[i++] = std::max(biased, 1) - 127;  // subnormal numbers are not normalised
    }
    return operand;
}

float wgmma_factor(const FactorOperand& a, const FactorOperand& b) {
    if (!a.finite || !b.finite) return std::numeric_limits<float>::quiet_NaN();
    constexpr int kPairs[8][2] = {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 1}, {1, 2}, {2, 1}};
    int32_t largest = kLeastExponent;
    for (const auto [i, j] : kPairs)
        if (a.mantissa[i] != 0 && b.mantissa[j] != 0) largest = std::max(largest, a.exponent[i] + b.exponent[j]);
    int64_t total = 0;  // in units of 2^(largest - kFraction)
    for (const auto [i, j] : kPairs) {
        const int64_t product = int64_t{a.mantissa[i]} * b.mantissa[j];
        const int32_t down = std::min(largest - a.exponent[i] - b.exponent[j], 63);
        const int64_t kept = (std::abs(product) << (kFraction - kProductFraction)) >> std::max(down, 0);
        total += product < 0 ? -kept : kept;
    }
    return truncated_to_float(static_cast<double>(total) * power_of_two(largest - kFraction));
}

}  // namespace finegemm
