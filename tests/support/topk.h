// Random selections, with guards around what is written. Layer tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <finegemm/topk/topk.h>
#include <fmt/format.h>

#include "ops/topk/call.h"
#include "support/matrix.h"
#include "support/random.h"

namespace finegemm::test {

/// What a selection writes, as bits.
struct Selected {
    std::vector<uint32_t> words;
    bool intact = true;
    bool operator==(const Selected&) const = default;
};

/// Memory for what is written.
struct TopkMemory {
    Buffer<int32_t> indices, histogram;
    Buffer<float> values;
    bool has_indices, has_values, has_histogram;

    TopkMemory(int64_t rows, int64_t k, bool with_values, bool with_histogram, int64_t padding)
        : indices(DType::I32, k > 0 ? rows : 0, k, padding),
          histogram(DType::I32, with_histogram ? rows : 0, kTopkHistogramBins, padding),
          values(DType::F32, with_values ? rows : 0, k, padding),
          has_indices(k > 0),
          has_values(with_values),
          has_histogram(with_histogram) {}
    TopkOutputs view() {
        return {has_indices ? indices.view() : Matrix{}, has_values ? values.view() : Matrix{},
                has_histogram ? histogram.view() : Matrix{}};
    }
    Selected selected() {
        Selected s;
        const auto add = [&](auto& x) {
            const Matrix m = x.view();
            for (int64_t r = 0; r < m.rows; ++r)
                for (int64_t c = 0; c < m.cols; ++c) s.words.push_back(std::bit_cast<uint32_t>(x.at(r, c)));
            s.intact = s.intact && x.surroundings_intact();
        };
        if (has_indices) add(indices);
        if (has_values) add(values);
        if (has_histogram) add(histogram);
        return s;
    }
};

struct TopkProblem {
    int64_t rows, cols, k, padding;
    bool with_values, with_histogram, windows;
    int64_t each;
    bool own_lengths;
    Buffer<float> logits;
    Buffer<int32_t> starts, ends;
    TopkOptions options{};

    TopkProblem(Random& r, int64_t most_rows, int64_t most_cols)
        : rows(r.any(1, most_rows)),
          cols(r.any(1, r.one_in(3) ? most_cols : 300)),
          k(r.one_in(12) ? 0 : r.any(1, std::min<int64_t>(r.one_in(3) ? 2048 : 40, cols + 5))),
          padding(r.one_of({0, 0, 3, 8})),
          with_values(k > 0 && r.one_in(2)),
          with_histogram(k == 0 || r.one_in(3)),
          windows(r.one_in(2)),
          each(windows || !r.one_in(2) ? 1 : r.any(1, 4)),
          own_lengths(each == 1 || r.one_in(2)),
          logits(DType::F32, rows *= each, cols, r.one_of({0, 0, 1, 4})),
          starts(DType::I32, 1, rows),
          ends(DType::I32, windows || each == 1 ? 1 : rows / each,
               windows || each == 1 ? rows
               : own_lengths        ? each
                                    : 1) {
        options.sorted = r.one_in(2);
        const int64_t distinct = r.one_of<int64_t>({1, 3, 40, 0}), kind = r.any(0, 3);
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < cols; ++j) {
                float x = r.normal(1);
                if (kind == 1) x = std::exp2(x * 40);
                if (kind == 2) x = 1 + x * 1e-6f;
                if (distinct > 0) x = static_cast<float>(r.any(0, distinct - 1)) - 1;
                if (r.one_in(30)) x = r.one_of({NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, -3e38f});
                logits.at(i, j) = x;
            }
        for (int64_t i = 0; i < rows; ++i) starts.at(0, i) = static_cast<int32_t>(r.any(-3, cols + 3));
        const Matrix e = ends.view();
        for (int64_t i = 0; i < e.rows; ++i)
            for (int64_t j = 0; j < e.cols; ++j)
                ends.at(i, j) = static_cast<int32_t>(r.one_in(6) ? r.any(-3, cols + 3) : r.any(cols / 2, cols));
    }
    std::string name() const {
        return fmt::format("{}x{} k {} each {} own {} windows {} sorted {} values {} histogram {}", rows, cols, k, each,
                           own_lengths, windows, options.sorted, with_values, with_histogram);
    }
    TopkCall call(const TopkOutputs& out) {
        const bool any = windows || each > 1;
        return {{.logits = logits.view(),
                 .starts = windows ? starts.view() : Matrix{},
                 .ends = any ? ends.view() : Matrix{},
                 .out = out},
                options,
                each,
                own_lengths};
    }
    template <typename Run>
    Selected run(const Run& run) {
        TopkMemory memory(rows, k, with_values, with_histogram, padding);
        run(call(memory.view()));
        return memory.selected();
    }
    /// The columns that row i is selected from, as the rules have them.
    std::pair<int64_t, int64_t> window(int64_t i) {
        const auto clip = [&](int64_t x) { return std::clamp<int64_t>(x, 0, cols); };
        if (windows) return {clip(starts.at(0, i)), clip(ends.at(0, i))};
        if (each == 1) return {0, cols};
        const int64_t b = i / each, t = i % each;
        if (!own_lengths) return {0, clip(ends.at(b, 0) - (each - 1 - t))};
        return {0, std::min(clip(ends.at(b, t)), clip(ends.at(b, each - 1)))};
    }
};

}  // namespace finegemm::test
