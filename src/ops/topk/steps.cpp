// A selection from logits as the calls that compute them and that select. Layer engine.
#include "ops/topk/steps.h"

#include <algorithm>

#include "plan/elements.h"

namespace finegemm {

namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;  // of logits in memory of ours
constexpr int64_t kQueriesAtLeast = 16;             // that are multiplied together, at most

/// Rows of logits in 16 bytes each: stores and loads are the fastest.
int64_t stride_of(int64_t width) { return (width + 3) / 4 * 4; }

/// How rows are split: units of rows, a step has so many of them.
struct Split {
    int64_t rows, unit, units;  // units: of a step

    /// Steps that have about as much to do, each with no more memory than there may be.
    static Split of(int64_t rows, int64_t unit, int64_t width, bool logits_are_given) {
        const auto parts = [](int64_t extent, int64_t size) { return (extent + size - 1) / size; };
        const int64_t all = parts(rows, unit);
        if (logits_are_given) return {rows, unit, all};
        const int64_t bytes = std::max<int64_t>(unit * stride_of(width) * size_of(DType::F32), 1);
        const int64_t most = std::max<int64_t>(kMostBytes / bytes, 1);
        return {rows, unit, parts(all, parts(all, most))};
    }
    int64_t step() const { return units * unit; }
    int64_t bytes(int64_t width) const { return std::min(rows, step()) * stride_of(width) * size_of(DType::F32); }
};

Split split_of(const MqaTopkCall& call) {
    return Split::of(call.rows(), kQueriesAtLeast, call.k.rows, is_given(call.logits));
}
Split split_of(const PagedMqaTopkCall& call) {
    return Split::of(call.rows(), call.rows() / call.block_table.rows, call.width(), is_given(call.logits));
}

/// Some rows of a matrix.
template <typename AnyMatrix>
AnyMatrix rows_of(AnyMatrix x, int64_t first, int64_t count) {
    using Bytes = std::conditional_t<std::is_same_v<AnyMatrix, Matrix>, uint8_t, const uint8_t>;
    if (x.data && x.rows > 1) x.data = static_cast<Bytes*>(x.data) + first * x.row_stride * size_of(x.dtype);
    x.rows = count;
    return x;
}
/// Some columns of a matrix of one row.
ConstMatrix columns_of(ConstMatrix x, int64_t first, int64_t count) {
    x.data = static_cast<const uint8_t*>(x.data) + first * size_of(x.dtype);
    x.cols = count;
    return x;
}
ConstStack queries_of(ConstStack q, int64_t first, int64_t count) {
    if (q.count > 1) q.matrix.data = static_cast<const uint8_t*>(q.matrix.data) + first * q.stride;
    q.count = count;
    return q;
}
TopkOutputs outputs_of(const TopkOutputs& out, int64_t first, int64_t count) {
    return {rows_of(out.indices, first, count), rows_of(out.values, first, count),
            rows_of(out.histogram, first, count)};
}

/// The queries of a step.
MqaCall part_of(const MqaCall& all, int64_t first, int64_t count) {
    return {.q = queries_of(all.q, first, count),
            .k = all.k,
            .sfk = all.sfk,
            .w = rows_of(all.w, first, count),
            .starts = columns_of(all.starts, first, count),
            .ends = columns_of(all.ends, first, count),
            .d = all.d,
            .options = all.options};
}
PagedMqaCall part_of(const PagedMqaCall& all, int64_t first, int64_t count) {
    const int64_t each = all.queries_each();
    return {.q = queries_of(all.q, first, count),
            .cache = all.cache,
            .w = rows_of(all.w, first, count),
            .lengths = rows_of(all.lengths, first / each, count / each),
            .block_table = rows_of(all.block_table, first / each, count / each),
            .schedule = {},
            .d = all.d,
            .options = all.options};
}

/// The numbers of these logits that are selected from.
/// `early`: windows are there when the call begins, as all of it waits for what is before it.
TopkCall selection_of(const MqaCall& logits, const TopkOutputs& out, const TopkOptions& options, bool early) {
    return {
        {.logits = logits.d, .starts = logits.starts, .ends = logits.ends, .out = out}, options, 1, true, true, early};
}
TopkCall selection_of(const PagedMqaCall& logits, const TopkOutputs& out, const TopkOptions& options, bool early) {
    return {{.logits = logits.d, .starts = {}, .ends = logits.lengths, .out = out},
            options,
            logits.queries_each(),
            logits.has_own_lengths() || logits.queries_each() == 1,
            true,
            early};
}

/// Step after step: its logits, and what is selected from them.
template <typename SomeCall>
void run(Backend& backend, const SomeCall& call, void* memory) {
    MqaOptions options = for_logits(call.options);
    TopkOptions selects = call.options;
    selects.pdl = false;  // what was asked for is of the first launch; a selection overlaps with logits in any case
    const bool given = is_given(call.logits);
    if (!given) options.form = LogitsForm::Untouched;
    const auto all = logits_call(call, options);
    const Split split = split_of(call);
    for (int64_t first = 0; first < call.rows(); first += split.step()) {
        const int64_t count = std::min(split.step(), call.rows() - first);
        auto part = part_of(all, first, count);
        if (!given) part.d.data = memory, part.d.row_stride = stride_of(part.d.cols);
        part.d.rows = count;
        if (part.d.cols > 0) backend.run(part);
        backend.run(selection_of(part, outputs_of(call.out, first, count), selects, !call.options.pdl));
        options.pdl = true;
    }
}

}  // namespace

TopkSteps steps_of(const TopkShape& shape) {
    const int64_t unit = shape.paged ? shape.queries : kQueriesAtLeast;
    const Split split = Split::of(shape.rows(), unit, shape.keys, shape.logits);
    const int64_t rows = std::min(shape.rows(), split.step());
    return {(shape.rows() + rows - 1) / rows, rows, shape.logits ? 0 : split.bytes(shape.keys)};
}

int64_t memory_of(const MqaTopkCall& call) { return is_given(call.logits) ? 0 : split_of(call).bytes(call.k.rows); }
int64_t memory_of(const PagedMqaTopkCall& call) {
    return is_given(call.logits) ? 0 : split_of(call).bytes(call.width());
}

void run_steps(Backend& backend, const MqaTopkCall& call, void* memory) { run(backend, call, memory); }
void run_steps(Backend& backend, const PagedMqaTopkCall& call, void* memory) { run(backend, call, memory); }

}  // namespace finegemm
