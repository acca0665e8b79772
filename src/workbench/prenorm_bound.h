// How far a product before a norm may be from the exact one, on any device: the sums of all slices. docs/prenorm.md
// derives both. Layer api.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <finegemm/prenorm/arithmetic.h>

namespace finegemm {

/// At least (1 + 2^-24)^n - 1: the relative error of n roundings.
inline double relative_error(int64_t roundings) { return std::expm1(static_cast<double>(roundings) * 0x1p-24); }

/// `absolute`: the sum of magnitudes of products.
inline double prenorm_bound(double absolute, int64_t k) {
    constexpr int64_t kMostAtOnce = kPrenormChunk * kPrenormBlock;
    return absolute * relative_error(std::min(k, kMostAtOnce) + k / kScaleBlock + 12) +
           static_cast<double>(k) * 0x1p-125;
}

inline double prenorm_squares_bound(double sum, int64_t k) {
    return sum * relative_error(k / kPrenormPartials + 12) + static_cast<double>(k) * 0x1p-149;
}

}  // namespace finegemm
