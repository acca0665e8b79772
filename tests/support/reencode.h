// MXFP8 to be given scales for 128 of K, with all that is written. Layer tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/quantize/call.h"

namespace finegemm::test {

/// A stack in memory of its own, whose rest is a pattern that must survive.
template <typename T>
struct StackMemory {
    static constexpr int64_t kGuard = 64;
    int64_t count, rows, cols, row_stride, col_stride, stride;
    T pattern;
    std::vector<T> all;

    /// `padding`: behind each row, or column of what is MN-major. `gap`: behind each matrix.
    StackMemory(int64_t count_, int64_t rows_, int64_t cols_, bool mn_major, int64_t padding, int64_t gap, T pattern_)
        : count(count_),
          rows(rows_),
          cols(cols_),
          row_stride(mn_major ? 1 : cols + padding),
          col_stride(mn_major ? rows + padding : 1),
          stride((mn_major ? cols * col_stride : rows * row_stride) + gap),
          pattern(pattern_),
          all(static_cast<size_t>(count * stride + 2 * kGuard), pattern) {}

    size_t place(int64_t g, int64_t r, int64_t c) const {
        return static_cast<size_t>(kGuard + g * stride + r * row_stride + c * col_stride);
    }
    T& at(int64_t g, int64_t r, int64_t c) { return all[place(g, r, c)]; }
    Stack view(DType dtype) {
        return {{all.data() + kGuard, dtype, rows, cols, row_stride, col_stride, {}}, count, stride};
    }
    void clear() { std::fill(all.begin(), all.end(), pattern); }
    bool surroundings_intact() const {
        std::vector<bool> inside(all.size());
        for (int64_t g = 0; g < count; ++g)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t c = 0; c < cols; ++c) inside[place(g, r, c)] = true;
        for (size_t i = 0; i < all.size(); ++i)
            if (!inside[i] && std::memcmp(&all[i], &pattern, sizeof(T)) != 0) return false;
        return true;
    }
};

/// What a random problem looks like.
struct ReencodeShape {
    int64_t count, m, k;
    bool blocks;  // of more than one row
    bool words_mn_major = false, scales_mn_major = false, counted = true;
    int64_t padding = 0;   // of codes: times 16
    uint32_t base = 127;   // about which exponents lie
    uint32_t spread = 8;   // how far apart they are
    bool with_nan = true;  // codes and exponents
};

struct ReencodeProblem {
    static constexpr uint32_t kBefore = 0xfffffffd;  // of `changed`: is added to, and may wrap around
    ReencodeShape shape;
    StackMemory<uint8_t> codes, q;
    StackMemory<uint32_t> words;
    StackMemory<float> scales;
    uint32_t changed[3] = {7, kBefore, 7};

    ReencodeProblem(const ReencodeShape& s, uint32_t seed)
        : shape(s),
          codes(s.count, s.m, s.k, false, 16 * s.padding, 32 * s.padding, 0x7f),
          q(s.count, s.m, s.k, false, 32 * s.padding, 16 * s.padding, 0x5a),
          words(s.count, s.m, across(s.k), s.words_mn_major, s.padding, 3 * s.padding, 0xffffffffu),
          scales(s.count, s.blocks ? across(s.m) : s.m, across(s.k), s.scales_mn_major, 2 * s.padding, s.padding,
                 -7.25f) {
        std::mt19937 random(seed);
        for (int64_t g = 0; g < s.count; ++g)
            for (int64_t r = 0; r < s.m; ++r)
                for (int64_t c = 0; c < s.k; c += 32) fill_group(random, g, r, c);
        // What serves no column says nothing, and NaN least of all.
        for (int64_t c = (s.k + 31) / 32 * 32; c < across(s.k) * 128; c += 32)
            for (int64_t g = 0; g < s.count; ++g)
                for (int64_t r = 0; r < s.m; ++r) set_exponent(g, r, c, 255 - c / 32 % 2);
    }
    static int64_t across(int64_t n) { return (n + 127) / 128; }

    uint32_t exponent(int64_t g, int64_t r, int64_t c) { return words.at(g, r, c / 128) >> c % 128 / 32 * 8 & 0xff; }
    void set_exponent(int64_t g, int64_t r, int64_t c, int64_t e) {
        const auto at = static_cast<uint32_t>(c % 128 / 32 * 8);
        uint32_t& word = words.at(g, r, c / 128);
        word = (word & ~(0xffu << at)) | static_cast<uint32_t>(e) << at;
    }

    /// Fills what is written with patterns, and has `run` write it.
    template <typename Run>
    void run(const Run& run_call) {
        q.clear(), scales.clear();
        changed[1] = kBefore;
        const ReencodeOptions options{};
        ReencodeArgs args{.codes = codes.view(DType::E4M3),
                          .words = words.view(DType::UE8M0x4),
                          .q = q.view(DType::E4M3),
                          .scales = scales.view(DType::F32)};
        if (shape.counted) args.changed = {&changed[1], DType::I32, 1, 1, 1, 1, {}};
        run_call(ReencodeCall{args, options});
    }
    bool surroundings_intact() const {
        const bool numbers = changed[0] == 7 && changed[2] == 7 && (shape.counted || changed[1] == kBefore);
        return numbers && q.surroundings_intact() && scales.surroundings_intact();
    }
    /// All bytes that may have been written.
    std::vector<uint8_t> written() const {
        std::vector<uint8_t> all = q.all;
        const auto append = [&](const void* from, size_t bytes) {
            const auto* const first = static_cast<const uint8_t*>(from);
            all.insert(all.end(), first, first + bytes);
        };
        append(scales.all.data(), scales.all.size() * sizeof(float));
        append(changed, sizeof changed);
        return all;
    }
    std::string name() const {
        const ReencodeShape& s = shape;
        return std::to_string(s.count) + " of " + std::to_string(s.m) + "x" + std::to_string(s.k) +
               (s.blocks ? " blocks" : " rows") + (s.words_mn_major ? ", words MN-major" : "") +
               (s.scales_mn_major ? ", scales MN-major" : "") + (s.counted ? ", counted" : "") + ", exponents " +
               std::to_string(s.base) + " +- " + std::to_string(s.spread) + ", padding " + std::to_string(s.padding);
    }

private:
    /// Codes with one exponent: of any kind, subnormal, zeros of both signs, or the largest; some are NaN.
    void fill_group(std::mt19937& random, int64_t g, int64_t r, int64_t c) {
        const auto kind = random() % 12;
        const auto moved = static_cast<int64_t>(shape.base) + static_cast<int64_t>(random() % (2 * shape.spread + 1)) -
                           static_cast<int64_t>(shape.spread);
        int64_t e = std::clamp<int64_t>(moved, 0, 254);
        if (random() % 50 == 0) e = static_cast<int64_t>(random() % 2 * 254);
        if (shape.with_nan && random() % 80 == 0) e = 255;
        set_exponent(g, r, c, e);
        for (int64_t i = c; i < std::min(shape.k, c + 32); ++i) {
            const auto sign = static_cast<uint32_t>(random() % 2 * 0x80);
            uint32_t code = static_cast<uint32_t>(random() % 0x7f);
            if (kind < 2) code = 0;
            else if (kind == 2) code %= 8;
            else if (kind == 3) code = 0x7e;
            else if (kind == 4) code = code < 0x70 ? 0 : code;
            if (shape.with_nan && (kind == 5 ? random() % 4 != 0 : random() % 300 == 0)) code = 0x7f;
            codes.at(g, r, i) = static_cast<uint8_t>(code | sign);
        }
    }
};

/// A problem has scales of rows where not told otherwise.
inline ReencodeProblem random_reencode(std::mt19937& random) {
    const auto one_of = [&](std::initializer_list<int64_t> choices) {
        return choices.begin()[random() % choices.size()];
    };
    const int64_t m = one_of({1, 2, 5, 127, 128, 129, static_cast<int64_t>(1 + random() % 300)});
    const ReencodeShape shape{.count = static_cast<int64_t>(1 + random() % 3),
                              .m = m,
                              .k = 16 * one_of({1, 2, 3, 8, 9, 32, 33, static_cast<int64_t>(1 + random() % 40)}),
                              .blocks = m > 1 && random() % 2 == 0,
                              .words_mn_major = random() % 2 == 0,
                              .scales_mn_major = random() % 2 == 0,
                              .counted = random() % 3 != 0,
                              .padding = static_cast<int64_t>(random() % 3),
                              .base = static_cast<uint32_t>(one_of({127, 127, 0, 1, 20, 128, 240, 254})),
                              .spread = static_cast<uint32_t>(one_of({0, 3, 8, 20, 254})),
                              .with_nan = random() % 4 != 0};
    return {shape, static_cast<uint32_t>(random())};
}

}  // namespace finegemm::test
