// Random calls of an indexer's scores, with guards around all that they have. Layer tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ops/mqa/call.h"
#include "support/matrix.h"
#include "support/random.h"

namespace finegemm::test {

/// Whether products of heads and keys are many depends on the tests' patience.
inline constexpr int64_t kMostProducts = 30'000;

/// What prefill and decoding have alike: queries, weights, options. Weights are of any sign and size, and sometimes
/// are zeros, NaN or infinite.
struct MqaQueries {
    int64_t heads, dim, count;
    Buffer<uint8_t> q;  // [count * heads, dim], rows padded
    Buffer<float> w;
    MqaOptions options{};
    DType logits;

    MqaQueries(Random& r, int64_t queries)
        : heads(r.one_of<int64_t>({8, 16, 32, 64})),
          dim(r.one_of<int64_t>({32, 64, 128})),
          count(queries),
          q(DType::E4M3, count * heads, dim, r.one_in(3) ? 16 : 0),
          w(DType::F32, count, heads, r.one_in(3) ? r.any(1, 9) : 0),
          logits(r.one_of({DType::F32, DType::BF16})) {
        options.relu = r.one_of({Relu::Exact, Relu::Abs});
        for (int64_t i = 0; i < count; ++i) {
            const float size = std::exp2(static_cast<float>(r.one_in(4) ? r.any(-130, 120) : r.any(-3, 3)));
            const bool zeros = r.one_in(12), odd = r.one_in(12), keeps_sign = r.one_in(3);
            for (int64_t h = 0; h < heads; ++h) {
                const float x = r.normal(1) * size;
                w.at(i, h) = zeros ? 0 : keeps_sign ? std::abs(x) : x;
                for (int64_t k = 0; k < dim; ++k) q.at(i * heads + h, k) = code(r);
            }
            if (odd) w.at(i, r.any(0, heads - 1)) = r.one_of({NAN, INFINITY, -INFINITY, 3e38f, 0.0f, -0.0f, 1e-45f});
            if (r.one_in(20)) q.at(i * heads + r.any(0, heads - 1), r.any(0, dim - 1)) = 0x7f;
        }
    }

    static uint8_t code(Random& r) {
        return r.one_in(50) ? static_cast<uint8_t>(r.any(0, 126) | (r.one_in(2) ? 128 : 0))
                            : e4m3_of_float(r.normal(2));
    }
    ConstStack stack() {
        const Matrix all = q.view();
        return {{all.data, DType::E4M3, heads, dim, all.row_stride, 1, {}}, count, heads * all.row_stride};
    }
};

/// The logits of either type, untouched at first.
struct Logits {
    Buffer<float> f32;
    Buffer<uint16_t> bf16;
    DType dtype;

    Logits(DType type, int64_t rows, int64_t cols, int64_t padding)
        : f32(DType::F32, type == DType::F32 ? rows : 0, cols, padding),
          bf16(DType::BF16, type == DType::BF16 ? rows : 0, cols, padding),
          dtype(type) {}
    Matrix view() { return dtype == DType::F32 ? f32.view() : bf16.view(); }
    uint32_t bits(int64_t r, int64_t c) { return dtype == DType::F32 ? float_bits(f32.at(r, c)) : bf16.at(r, c); }
    static uint32_t untouched(DType type) { return type == DType::F32 ? 0xa5a5a5a5 : 0xa5a5; }
    bool surroundings_intact() { return f32.surroundings_intact() && bf16.surroundings_intact(); }
};

struct MqaProblem {
    MqaQueries queries;
    int64_t keys;
    Buffer<uint8_t> k;
    Buffer<float> sfk;
    Buffer<int32_t> starts, ends;
    Logits d;

    explicit MqaProblem(Random& r)
        : queries(r, r.one_in(20) ? 0 : r.any(1, 24)),
          keys(r.one_in(4) ? r.any(1, 1200) : r.any(1, 200)),
          k(DType::E4M3, keys, queries.dim, r.one_in(3) ? 32 : 0),
          sfk(DType::F32, 1, keys),
          starts(DType::I32, 1, queries.count),
          ends(DType::I32, 1, queries.count),
          d(queries.logits, queries.count, 0, 0) {
        queries.options.form = r.one_of({LogitsForm::Filled, LogitsForm::Untouched, LogitsForm::Compressed});
        for (int64_t j = 0; j < keys; ++j) {
            sfk.at(0, j) = r.one_in(60) ? NAN : std::abs(r.normal(0.1f));
            for (int64_t c = 0; c < queries.dim; ++c) k.at(j, c) = MqaQueries::code(r);
            if (r.one_in(60)) k.at(j, r.any(0, queries.dim - 1)) = 0x7f;
        }
        const int64_t each = kMostProducts / std::max<int64_t>(queries.count * queries.heads, 1);
        int64_t longest = 0;
        for (int64_t i = 0; i < queries.count; ++i) {
            const int64_t start = r.any(-3, keys + 3), length = r.one_in(5) ? -r.any(0, 9) : r.any(0, each);
            starts.at(0, i) = static_cast<int32_t>(start), ends.at(0, i) = static_cast<int32_t>(start + length);
            longest = std::max(longest, std::min(start + length, keys) - std::max<int64_t>(start, 0));
        }
        const int64_t cols = !compressed() ? keys
                             : r.one_in(4) ? std::max<int64_t>(longest - r.any(0, 9), 1)
                                           : longest + r.any(1, 9);
        d = Logits(queries.logits, queries.count, cols, r.one_in(2) ? r.any(0, 40) : 0);
    }
    bool compressed() const { return queries.options.form == LogitsForm::Compressed; }
    MqaCall call() {
        return {.q = queries.stack(),
                .k = k.view(),
                .sfk = sfk.view(),
                .w = queries.w.view(),
                .starts = starts.view(),
                .ends = ends.view(),
                .d = d.view(),
                .options = queries.options};
    }
};

struct PagedMqaProblem {
    int64_t requests, each;
    MqaQueries queries;
    int64_t page_size, pages, most_pages;
    bool own_lengths;
    Buffer<uint8_t> cache;
    Buffer<int32_t> lengths, block_table;
    Logits d;

    /// Of so many requests; of a few where none are asked for.
    explicit PagedMqaProblem(Random& r, int64_t count = 0)
        : requests(count > 0 ? count : r.any(1, 6)),
          each(r.any(1, 8)),
          queries(r, requests * each),
          page_size(r.one_of<int64_t>({4, 16, 32, 64})),
          pages(0),
          most_pages(r.any(1, r.one_in(4) ? 60 : 6)),
          own_lengths(r.one_in(2)),
          cache(DType::E4M3, 0, 0),
          lengths(DType::I32, requests, own_lengths ? each : 1, r.one_in(3) ? 3 : 0),
          block_table(DType::I32, requests, most_pages, r.one_in(3) ? r.any(1, 9) : 0),
          d(queries.logits, 0, 0, 0) {
        queries.options.form = r.one_of({LogitsForm::Filled, LogitsForm::Untouched});
        const int64_t most =
            std::min(most_pages * page_size, std::max<int64_t>(kMostProducts / (queries.count * queries.heads), 1));
        const bool none = r.one_in(15);
        int64_t used = 0;
        for (int64_t b = 0; b < requests; ++b) {
            const int64_t last = none || r.one_in(5) ? 0 : r.any(0, most);
            for (int64_t t = 0; t < lengths.view().cols; ++t)
                lengths.at(b, t) =
                    static_cast<int32_t>(std::max<int64_t>(last - (lengths.view().cols - 1 - t) * r.any(0, 1), 0));
            used += (last + page_size - 1) / page_size;
        }
        make_pages(r, used);
        const int64_t cols = r.one_in(4) ? std::max<int64_t>(most - r.any(0, 9), 1) : most + r.any(0, 200);
        d = Logits(queries.logits, queries.count, cols, r.one_in(2) ? r.any(0, 40) : 0);
    }

    PagedMqaCall call() {
        return {.q = queries.stack(),
                .cache = cache.view(),
                .w = queries.w.view(),
                .lengths = lengths.view(),
                .block_table = block_table.view(),
                .schedule = {},
                .d = d.view(),
                .options = queries.options};
    }

private:
    /// Codes, then scales. All are NaN where there is no key.
    void make_pages(Random& r, int64_t used) {
        pages = used + r.any(1, 5);
        cache = Buffer<uint8_t>(DType::E4M3, pages, page_size * (queries.dim + 4), r.one_in(3) ? 16 * r.any(1, 3) : 0);
        for (int64_t p = 0; p < pages; ++p) std::fill_n(&cache.at(p, 0), page_size * (queries.dim + 4), uint8_t{0xff});
        std::vector<int32_t> order(static_cast<size_t>(pages));
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = order.size(); i > 1; --i)
            std::swap(order[i - 1], order[static_cast<size_t>(r.any(0, static_cast<int64_t>(i) - 1))]);
        size_t next = 0;
        for (int64_t b = 0; b < requests; ++b) {
            const int64_t length = lengths.at(b, lengths.view().cols - 1);
            for (int64_t p = 0; p < most_pages; ++p) {
                if (p * page_size >= length) {
                    block_table.at(b, p) = r.one_of({-1, 0, 1 << 30, std::numeric_limits<int32_t>::min()});
                    continue;
                }
                block_table.at(b, p) = order[next++];
                for (int64_t s = 0; s < std::min(page_size, length - p * page_size); ++s)
                    make_key(r, block_table.at(b, p), s);
                if (r.one_in(30)) block_table.at(b, p) = r.one_of({-1, 1 << 30});  // then it is page 0
            }
        }
    }
    void make_key(Random& r, int64_t page, int64_t slot) {
        for (int64_t c = 0; c < queries.dim; ++c) cache.at(page, slot * queries.dim + c) = MqaQueries::code(r);
        const float scale = r.one_in(60) ? NAN : std::abs(r.normal(0.1f));
        std::memcpy(&cache.at(page, page_size * queries.dim + 4 * slot), &scale, 4);
    }
};

}  // namespace finegemm::test
