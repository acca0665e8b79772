// Changes of scales' layout on the CPU. Layer engine.
#include "ops/scale_layout/cpu.h"

#include <algorithm>
#include <vector>

#include "engine/any_address.h"

namespace finegemm {

namespace {

/// What is the same for all elements of a call.
struct Job {
    const ScaleLayoutCall& call;
    ScaleRounding rounding;
    int64_t row_step, col_step;           // of `sf`, in elements
    std::vector<WordSource> sources{};    // of each word, where K has groups
    std::vector<uint8_t> grouped_rows{};  // of each row, where rows have groups
};

std::vector<WordSource> sources_of(const ScaleGrouper& groups, int64_t words) {
    std::vector<WordSource> sources(static_cast<size_t>(words));
    uint32_t first = 0;
    size_t next = 0;
    for (uint32_t g = 0; g < groups.groups; ++g) {
        const uint32_t scales = groups.scales(g);
        for (uint32_t w = 0; w < ceil_div(scales, kExponentsPerWord) && next < sources.size(); ++w)
            sources[next++] = group_word_source(first, scales, w);
        first += scales;
    }
    return sources;
}

std::vector<uint8_t> grouped_rows_of(const ScaleGrouper& groups, int64_t rows) {
    std::vector<uint8_t> grouped(static_cast<size_t>(rows));
    for (uint32_t g = 0; g < groups.groups; ++g)
        for (int64_t r = groups.begin(g); r < std::min<int64_t>(groups.number(g), rows); ++r)
            grouped[static_cast<size_t>(r)] = 1;
    return grouped;
}

/// Element `c` of a row that begins at element `row` of `sf`.
template <ScaleTransform Transform>
uint32_t element_of(const Job& job, int64_t row, int64_t c) {
    const ConstMatrix& in = job.call.sf.matrix;
    const auto bits = [&](int64_t col) { return load<uint32_t>(in.data, row + col * job.col_step); };
    if constexpr (Transform == ScaleTransform::Copy) {
        return bits(c);
    } else if constexpr (Transform == ScaleTransform::Round) {
        return job.rounding.exponent(bits(c)) << 23;
    } else if constexpr (Transform == ScaleTransform::Unpack) {
        return unpacked_scale(bits(c / kExponentsPerWord), static_cast<uint32_t>(c % kExponentsPerWord));
    } else {
        const auto [first, count] = job.sources.empty()
                                        ? WordSource{static_cast<uint32_t>(c) * kExponentsPerWord, kExponentsPerWord}
                                        : job.sources[static_cast<size_t>(c)];
        uint32_t word = 0;
        for (uint32_t b = 0; b < count && first + b < in.cols; ++b)
            word |= job.rounding.exponent(bits(first + b)) << 8 * b;
        return word;
    }
}

/// A band of rows of one matrix, a few columns at a time, so that what is read stays in the cache.
template <ScaleTransform Transform>
void transform_band(const Job& job, int64_t matrix, int64_t first, int64_t last) {
    constexpr int64_t kCols = 16;
    const auto& [sf, out, groups, options] = job.call;
    const Matrix& to = out.matrix;
    const auto one = [&, &out = out, &sf = sf](int64_t r, int64_t c) {
        const bool exists = job.grouped_rows.empty() || job.grouped_rows[static_cast<size_t>(r)] != 0;
        const int64_t row = matrix * sf.stride + (r >> job.call.row_shift()) * job.row_step;
        store(to.data, matrix * out.stride + r * to.row_stride + c * to.col_stride,
              exists ? element_of<Transform>(job, row, c) : 0);
    };
    for (int64_t c0 = 0; c0 < to.cols; c0 += kCols) {
        const int64_t c1 = std::min(c0 + kCols, to.cols);
        if (to.row_stride < to.col_stride)
            for (int64_t c = c0; c < c1; ++c)
                for (int64_t r = first; r < last; ++r) one(r, c);
        else
            for (int64_t r = first; r < last; ++r)
                for (int64_t c = c0; c < c1; ++c) one(r, c);
    }
}

}  // namespace

void run_on_cpu(const ScaleLayoutCall& call, ThreadPool& pool) {
    constexpr int64_t kRows = 64;
    const ScaleGrouper groups = call.grouper();
    const ConstMatrix& in = call.sf.matrix;
    const int64_t rows = call.out.matrix.rows, bands = (rows + kRows - 1) / kRows;
    Job job{.call = call,
            .rounding = call.rounding(),
            .row_step = in.rows > 1 ? in.row_stride : 0,
            .col_step = in.cols > 1 ? in.col_stride : 0};
    if (groups.of_k()) job.sources = sources_of(groups, call.out.matrix.cols);
    if (groups.of_rows()) job.grouped_rows = grouped_rows_of(groups, rows);
    const auto band = [&](int64_t i) {
        const int64_t matrix = i / bands, first = i % bands * kRows, last = std::min(first + kRows, rows);
        switch (call.transform()) {
            case ScaleTransform::Copy: return transform_band<ScaleTransform::Copy>(job, matrix, first, last);
            case ScaleTransform::Round: return transform_band<ScaleTransform::Round>(job, matrix, first, last);
            case ScaleTransform::Pack: return transform_band<ScaleTransform::Pack>(job, matrix, first, last);
            case ScaleTransform::Unpack: return transform_band<ScaleTransform::Unpack>(job, matrix, first, last);
        }
    };
    pool.parallel_for(call.out.count * bands, band, call.options.poll);
}

}  // namespace finegemm
