// What a GEMM should give, written for reading and not for speed. Layer tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <hwy/targets.h>

#include "support/matrix.h"

namespace finegemm::test {

/// The definition's sums in double, and the sums of magnitudes that error bounds are about.
struct Sums {
    std::vector<double> exact, absolute;  // (m, n)
};

inline Sums sums_of(Problem& p) {
    const auto decoded = [&](Buffer<uint8_t>& x, int64_t rows) {
        std::vector<double> values;
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t k = 0; k < p.k; ++k) values.push_back(float_of_e4m3(x.at(r, k)));
        return values;
    };
    // Subnormals count as 2^-6, for the tensor core takes their exponent to be -6.
    const auto magnitude = [](double v) { return v == 0 ? 0.0 : std::max(std::abs(v), 0x1p-6); };
    const std::vector<double> a = decoded(p.a, p.m), b = decoded(p.b, p.n);
    Sums sums;
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t c = 0; c < p.n; ++c) {
            double exact = 0, absolute = 0;
            for (int64_t k = 0; k < p.k; ++k) {
                const double x = a[static_cast<size_t>(r * p.k + k)], y = b[static_cast<size_t>(c * p.k + k)];
                const double scale = static_cast<double>(p.sfa_at(r, k / 128)) * p.sfb_at(c, k / 128);
                exact += x * y * scale;
                absolute += magnitude(x) * magnitude(y) * std::abs(scale);
            }
            sums.exact.push_back(exact);
            sums.absolute.push_back(absolute);
        }
    return sums;
}

/// Any codes but NaN: all exponents alike, subnormals and zeros among them.
inline void fill_with_any_codes(Problem& p, uint32_t seed) {
    std::mt19937 random(seed);
    for (auto [x, rows] : {std::pair{&p.a, p.m}, std::pair{&p.b, p.n}})
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t k = 0; k < p.k; ++k) {
                const auto code = static_cast<uint8_t>(random());
                x->at(r, k) = (code & 0x7f) == 0x7f ? uint8_t{0} : code;
            }
}

inline void fill_with_zeros(Problem& p) {
    for (auto [x, rows] : {std::pair{&p.a, p.m}, std::pair{&p.b, p.n}})
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t k = 0; k < p.k; ++k) x->at(r, k) = 0;
}

/// Leaves every tenth element of A: of some steps, subnormals are then the largest products, or nothing is.
inline void thin_out(Problem& p, uint32_t seed) {
    std::mt19937 random(seed);
    for (int64_t r = 0; r < p.m; ++r)
        for (int64_t k = 0; k < p.k; ++k)
            if (random() % 10 != 0) p.a.at(r, k) = 0;
}

/// Calls `body` once with each instruction set of this machine that the library was compiled for.
template <typename Body>
void for_each_instruction_set(const Body& body) {
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        hwy::SetSupportedTargetsForTest(target);
        SCOPED_TRACE(hwy::TargetName(target));
        body();
    }
    hwy::SetSupportedTargetsForTest(0);
}

}  // namespace finegemm::test
