// Matrices to quantise, and quantisations of columns with all that they write. Layer tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/quantize/call.h"
#include "plan/elements.h"
#include "support/matrix.h"

namespace finegemm::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A matrix of any input type, with what its elements are as floats.
struct Input {
    DType dtype;
    Buffer<uint16_t> halves;
    Buffer<float> floats;

    Input(DType dtype_, int64_t rows, int64_t cols, int64_t padding)
        : dtype(dtype_), halves(dtype, rows, cols, padding), floats(DType::F32, rows, cols, padding) {}

    ConstMatrix view() { return dtype == DType::F32 ? floats.view() : halves.view(); }
    void set(int64_t r, int64_t c, float x) {
        if (dtype == DType::F32) floats.at(r, c) = x;
        else if (dtype == DType::BF16) halves.at(r, c) = bf16_of_float(x);
        else halves.at(r, c) = __builtin_bit_cast(uint16_t, static_cast<_Float16>(x));
    }
    float at(int64_t r, int64_t c) {
        if (dtype == DType::F32) return floats.at(r, c);
        return dtype == DType::BF16 ? float_of_bf16(halves.at(r, c)) : float_of_f16(halves.at(r, c));
    }
};

/// Normal values of very different sizes; some NaN, infinities, zeros; blocks of nothing but zeros.
inline void fill(Input& x, int64_t rows, int64_t cols, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> kind(0, 300), size(-8, 6);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) {
            const bool zeros = (r / 128 + c / 128) % 5 == 3;
            const int k = kind(random);
            const float special = k == 0 ? kNaN : k == 1 ? kInfinity : k == 2 ? -kInfinity : k < 10 ? -0.0f : 0.0f;
            x.set(r, c, zeros ? 0.0f : k < 20 ? special : std::ldexp(normal(random), size(random)));
        }
}

/// x, what becomes of its columns and rows, and groups.
struct ColumnsProblem {
    int64_t m, k;
    std::vector<int32_t> offsets;  // empty: no groups
    bool with_rows, power_of_two;
    Input x;
    Buffer<uint8_t> q, row_q;
    Buffer<float> scales, row_scales;  // of columns: [blocks][k]
    std::vector<int32_t> begins;

    ColumnsProblem(DType dtype, int64_t m_, int64_t k_, std::vector<int32_t> offsets_, bool with_rows_,
                   bool power_of_two_, uint32_t seed, int64_t spare = 0, DType codes = DType::E4M3)
        : m(m_),
          k(k_),
          offsets(std::move(offsets_)),
          with_rows(with_rows_),
          power_of_two(power_of_two_),
          x(dtype, m, k, 16),
          q(codes, k, columns(m, offsets) + spare, 32),
          row_q(codes, m, k, 16),
          scales(DType::F32, blocks(columns(m, offsets) + spare), k, 3),
          row_scales(DType::F32, m, blocks(k), 1),
          begins(offsets.size() + 2, kUntouched) {
        fill(x, m, k, seed);
        // A row and a column of nothing that is finite.
        for (int64_t c = 0; c < k && m > 0; ++c) x.set(m / 2, c, c % 3 == 0 ? kNaN : -kInfinity);
        for (int64_t r = 0; r < m; ++r) x.set(r, 3, r % 3 == 0 ? kNaN : kInfinity);
    }
    static constexpr int32_t kUntouched = -7;
    static int64_t blocks(int64_t n) { return (n + 127) / 128; }
    /// The least of q.
    static int64_t columns(int64_t m, const std::vector<int32_t>& offsets) {
        if (offsets.empty()) return (m + 15) / 16 * 16;
        return (m + 127 * (static_cast<int64_t>(offsets.size()) - 1)) / 128 * 128;
    }

    /// Fills what is written with a pattern, and has `run` write it.
    template <typename Run>
    void run(const Run& run_call) {
        for (Buffer<uint8_t>* b : {&q, &row_q}) clear(*b);
        for (Buffer<float>* b : {&scales, &row_scales}) clear(*b);
        std::ranges::fill(begins, kUntouched);
        Matrix s = scales.view();
        std::swap(s.rows, s.cols);
        std::swap(s.row_stride, s.col_stride);
        QuantizeColumnsArgs args{.x = x.view(), .q = q.view(), .scales = s};
        if (with_rows) args.row_q = row_q.view(), args.row_scales = row_scales.view();
        if (!offsets.empty()) {
            const auto n = static_cast<int64_t>(offsets.size());
            args.offsets = {offsets.data(), DType::I32, 1, n, n, 1, {}};
            args.begins = {begins.data() + 1, DType::I32, 1, n, n, 1, {}};
        }
        const QuantizeOptions options{.power_of_two_scales = power_of_two};
        run_call(QuantizeColumnsCall{args, options});
    }
    bool surroundings_intact() {
        const bool numbers = begins.front() == kUntouched && begins.back() == kUntouched;
        return numbers && q.surroundings_intact() && scales.surroundings_intact() && row_q.surroundings_intact() &&
               row_scales.surroundings_intact();
    }
    /// All bytes that have been written.
    std::vector<uint8_t> written() {
        std::vector<uint8_t> all;
        const auto append = [&](const void* from, size_t bytes) {
            const auto* const first = static_cast<const uint8_t*>(from);
            all.insert(all.end(), first, first + bytes);
        };
        for (Buffer<uint8_t>* b : {&q, &row_q})
            for (int64_t r = 0; r < b->view().rows; ++r) append(&b->at(r, 0), static_cast<size_t>(b->view().cols));
        for (Buffer<float>* b : {&scales, &row_scales})
            for (int64_t r = 0; r < b->view().rows; ++r) append(&b->at(r, 0), static_cast<size_t>(b->view().cols) * 4);
        append(begins.data(), begins.size() * sizeof(int32_t));
        return all;
    }
    std::string name() const {
        std::string text = std::string(name_of(x.dtype)) + " " + std::to_string(m) + "x" + std::to_string(k);
        for (const int32_t offset : offsets) text += " " + std::to_string(offset);
        return text + (with_rows ? " with rows" : "") + (power_of_two ? " pow2" : "");
    }

private:
    template <typename T>
    static void clear(Buffer<T>& b) {
        for (int64_t r = 0; r < b.view().rows; ++r)
            for (int64_t c = 0; c < b.view().cols; ++c) std::memset(&b.at(r, c), 0x5a, sizeof(T));
    }
};

/// Offsets of groups of any sizes, some empty; rows before the first one and behind the last one may have no group.
inline std::vector<int32_t> random_offsets(std::mt19937& random, int64_t m, int64_t groups) {
    std::vector<int32_t> offsets(static_cast<size_t>(groups + 1));
    for (int32_t& offset : offsets) offset = static_cast<int32_t>(random() % static_cast<uint64_t>(m + 1));
    std::ranges::sort(offsets);
    if (random() % 2 == 0) offsets.front() = 0, offsets.back() = static_cast<int32_t>(m);
    if (groups > 2 && random() % 2 == 0) offsets[1] = offsets[2];
    return offsets;
}

inline ColumnsProblem random_columns(std::mt19937& random) {
    const DType dtypes[] = {DType::F32, DType::F16, DType::BF16};
    const auto m = static_cast<int64_t>(random() % 400);
    const int64_t k = 16 * static_cast<int64_t>(1 + random() % 18);
    std::vector<int32_t> offsets;
    if (random() % 3 != 0) offsets = random_offsets(random, m, static_cast<int64_t>(1 + random() % 9));
    const auto spare = static_cast<int64_t>(offsets.empty() ? 16 * (random() % 12) : 128 * (random() % 3 / 2));
    return {dtypes[random() % 3],
            m,
            k,
            offsets,
            random() % 2 == 0,
            random() % 2 == 0,
            static_cast<uint32_t>(random()),
            spare};
}

}  // namespace finegemm::test
