// Logits by their definition, one by one, as docs/indexer.md has it. Layer tests.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <finegemm/core/fp8.h>

#include "ops/mqa/call.h"

namespace finegemm::test {

/// Products of tensor cores, 32 at a time, from zero (docs/numerics.md).
inline float tensor_core_product(std::span<const uint8_t> a, std::span<const uint8_t> b) {
    const auto exponent = [](uint8_t c) { return std::max(c >> 3 & 15, 1) - 7; };
    const auto mantissa = [](uint8_t c) { return ((c >> 3 & 15) ? 8 + (c & 7) : c & 7) * (c & 0x80 ? -1 : 1); };
    const auto is_nan_code = [](uint8_t c) { return (c & 0x7f) == 0x7f; };
    double sum = 0;
    for (size_t first = 0; first < a.size(); first += 32) {
        int largest = sum != 0 ? std::ilogb(sum) : -1000;
        for (size_t i = first; i < first + 32; ++i) {
            if (is_nan_code(a[i]) || is_nan_code(b[i])) return std::numeric_limits<float>::quiet_NaN();
            if (mantissa(a[i]) * mantissa(b[i]) != 0) largest = std::max(largest, exponent(a[i]) + exponent(b[i]));
        }
        // In units of 2^(largest - 13), each addend cut towards zero.
        const auto cut = [&](double x) { return std::trunc(std::ldexp(x, 13 - largest)); };
        double total = cut(sum);
        for (size_t i = first; i < first + 32; ++i)
            total += cut(std::ldexp(mantissa(a[i]) * mantissa(b[i]), exponent(a[i]) + exponent(b[i]) - 6));
        if (total == 0) {
            sum = 0;
            continue;
        }
        const int unit = std::ilogb(total) - 13;
        sum = std::ldexp(std::trunc(std::ldexp(total, -unit)), unit + largest - 13);
    }
    return static_cast<float>(sum);
}

/// What a query is scored with.
struct ReferenceQuery {
    std::vector<std::vector<uint8_t>> heads;
    std::vector<float> w;
    bool abs = false;
    std::vector<uint8_t> columns[2] = {};  // of the abs form
    float step = 0;

    ReferenceQuery(const ConstStack& q, const ConstMatrix& weights, int64_t i, Relu relu) {
        const auto* codes = static_cast<const uint8_t*>(q.matrix.data) + i * q.stride;
        const auto* of_heads = static_cast<const float*>(weights.data) + i * weights.row_stride;
        for (int64_t h = 0; h < q.matrix.rows; ++h) {
            const uint8_t* head = codes + h * q.matrix.row_stride;
            heads.emplace_back(head, head + q.matrix.cols);
            w.push_back(of_heads[h]);
        }
        if (relu == Relu::Abs && heads.size() >= 32) make_columns();
    }

    /// Sums of four interleaved sets of heads, two neighbours of each eight at a time.
    template <typename Term>
    float sum_over_heads(const Term& term) const {
        float sums[4] = {};
        for (size_t h = 0; h < heads.size(); ++h) sums[h % 8 / 2] = term(h, sums[h % 8 / 2]);
        return (sums[0] + sums[2]) + (sums[1] + sums[3]);
    }

    float logit(std::span<const uint8_t> key, float scale) const {
        const auto x = [&](size_t h) { return tensor_core_product(heads[h], key); };
        if (!abs)
            return scale * sum_over_heads([&](size_t h, float sum) {
                       const float product = x(h);
                       return std::fma(product < 0 ? 0.0f : product, w[h], sum);
                   });
        const float of_abs =
            sum_over_heads([&](size_t h, float sum) { return std::fma(std::fabs(x(h)), w[h] * 0.5f, sum); });
        const float linear =
            std::fma(tensor_core_product(columns[1], key), 1.0f / 28, tensor_core_product(columns[0], key));
        return scale * std::fma(linear, step, of_abs);
    }

    struct Truth {
        double sum, absolute, bound;
    };
    /// The sum in double, and how far a computed one may be from it: docs/indexer.md, "Error bounds".
    Truth in_double(std::span<const uint8_t> key) const {
        const auto magnitude = [](uint8_t c) {
            return std::fabs(static_cast<double>(float_of_e4m3((c & 0x7f) > 0 && (c & 0x7f) < 8 ? 8 : c & 0x7f)));
        };
        double sum = 0, absolute = 0, of_key = 0;
        for (const uint8_t c : key) of_key += magnitude(c);
        for (size_t h = 0; h < heads.size(); ++h) {
            double x = 0, of_x = 0;
            for (size_t c = 0; c < key.size(); ++c) {
                x += static_cast<double>(float_of_e4m3(heads[h][c])) * float_of_e4m3(key[c]);
                of_x += magnitude(heads[h][c]) * magnitude(key[c]);
            }
            sum += (x > 0 || std::isnan(x) ? x : 0) * w[h], absolute += of_x * std::fabs(w[h]);
        }
        const double loss = (33 * static_cast<double>(key.size()) / 32 - 1) * 0x1p-13, u = 0x1p-24;
        const auto heads_count = static_cast<double>(heads.size());
        const double g = std::expm1((heads_count / 4 + 3) * u), of_v = std::expm1(heads_count * u);
        if (!abs) return {sum, absolute, absolute * (loss + g)};
        const double linear = of_v + (1 + of_v) * (0x1p-8 + loss * (1 + 0x1p-4) * (1 + 0x1p-4));
        const double small = step * of_key * (0x1p-14 + loss * 0x1p-5);
        return {sum, absolute, absolute / 2 * (loss + g + linear) + small + 3 * u * absolute};
    }

private:
    void make_columns() {
        std::vector<float> v(heads[0].size());
        float largest = 0;
        for (size_t k = 0; k < v.size(); ++k) {
            for (size_t h = 0; h < heads.size(); ++h) v[k] = std::fma(w[h] * 0.5f, float_of_e4m3(heads[h][k]), v[k]);
            if (!std::isfinite(v[k])) return;
            largest = std::max(largest, std::fabs(v[k]));
        }
        abs = true;
        step = 0x1p-126f;
        while (largest > 448 * step) step *= 2;
        for (const float x : v) {
            const float scaled = static_cast<float>(static_cast<double>(x) / step);
            columns[0].push_back(e4m3_of_float(scaled));
            columns[1].push_back(e4m3_of_float((scaled - float_of_e4m3(columns[0].back())) * 28));
        }
    }
};

/// Bits of a logit in the type that it is stored in.
inline uint32_t stored_bits(float x, DType type) {
    if (type == DType::BF16) return bf16_of_float(x);
    return std::isnan(x) ? 0x7fffffff : float_bits(x);
}

}  // namespace finegemm::test
