// What one wgmma of e4m3 sums, in integers: docs/numerics.md states it, tests/backend/hopper_model_test.cpp holds the
// CPU backend's to it. Layer tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <finegemm/core/fp8.h>

namespace finegemm {

/// A code as a number of eighths of 2^exponent; zero has an exponent that is never the largest.
struct E4m3Parts {
    int32_t mantissa, exponent;
    static E4m3Parts of(uint8_t code) {
        const int32_t field = code >> 3 & 15, magnitude = (field ? 8 : 0) + (code & 7);
        return {code & 0x80 ? -magnitude : magnitude, magnitude == 0 ? -1000 : std::max(field, 1) - 7};
    }
};

/// sum + a[0] * b[0] + ... + a[31] * b[31]: each addend keeps 13 bits below the largest exponent, and so does the sum.
inline float wgmma_step(float sum, const E4m3Parts* a, const E4m3Parts* b) {
    constexpr int32_t kFraction = 13;
    int32_t largest = sum == 0 ? -2000 : std::ilogb(sum);
    for (int32_t k = 0; k < 32; ++k) largest = std::max(largest, a[k].exponent + b[k].exponent);
    if (largest < -500) return 0;
    int64_t total = sum == 0 ? 0 : static_cast<int64_t>(std::scalbn(sum, kFraction - largest));
    for (int32_t k = 0; k < 32; ++k) {
        const int32_t product = a[k].mantissa * b[k].mantissa;
        const int32_t down = std::min(largest - (a[k].exponent + b[k].exponent), 31);
        const int32_t kept = (std::abs(product) << (kFraction - 6)) >> down;
        total += product < 0 ? -kept : kept;
    }
    if (total == 0) return 0;
    const auto magnitude = static_cast<uint64_t>(std::abs(total));
    const int32_t excess = 63 - __builtin_clzll(magnitude) - kFraction;
    const uint64_t kept = excess > 0 ? magnitude >> excess << excess : magnitude;
    const auto x = static_cast<float>(std::scalbn(static_cast<double>(kept), largest - kFraction));
    return total < 0 ? -x : x;
}

/// [m, n] = a[m, k] * b[n, k]^T, all row-major; NaN of NaN. `onto`: sums that it is added to.
inline std::vector<float> wgmma_product(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, uint32_t m,
                                        uint32_t n, uint32_t k, const std::vector<float>& onto = {}) {
    const auto parts = [](const std::vector<uint8_t>& codes) {
        std::vector<E4m3Parts> all(codes.size());
        std::ranges::transform(codes, all.begin(), E4m3Parts::of);
        return all;
    };
    const auto has_nan = [k](const std::vector<uint8_t>& codes, uint32_t row) {
        return std::any_of(codes.begin() + row * k, codes.begin() + (row + 1) * k,
                           [](uint8_t code) { return (code & 0x7f) == 0x7f; });
    };
    const std::vector<E4m3Parts> left = parts(a), right = parts(b);
    std::vector<bool> nan_cols(n);
    for (uint32_t c = 0; c < n; ++c) nan_cols[c] = has_nan(b, c);
    std::vector<float> all(size_t{m} * n);
    for (uint32_t r = 0; r < m; ++r) {
        const bool nan_row = has_nan(a, r);
        for (uint32_t c = 0; c < n; ++c) {
            float sum = onto.empty() ? 0 : onto[r * n + c];
            for (uint32_t i = 0; i < k; i += 32) sum = wgmma_step(sum, &left[r * k + i], &right[c * k + i]);
            all[r * n + c] = nan_row || nan_cols[c] || std::isnan(sum) ? float_of_bits(0x7fffffff) : sum;
        }
    }
    return all;
}

}  // namespace finegemm
