// Argument checks of an indexer's scores. Layer api.
#include "ops/mqa/checks.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "api/argument.h"
#include "plan/elements.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

constexpr int64_t kBytesOfScale = sizeof(float);
constexpr int64_t kMostQueriesEach = 8;

bool is_one_of(std::initializer_list<int64_t> allowed, int64_t x) {
    return std::ranges::find(allowed, x) != allowed.end();
}

/// Queries of [H, D] each.
void check_queries(const Argument& q) {
    q.check_dtype(DType::E4M3, "quantise it, and multiply w by its scales");
    q.check_extents();
    if (q.count < 0 || q.count > INT32_MAX)
        reject("q", "has {} queries, must be from 0 to {}; split larger problems", q.count, INT32_MAX);
    if (!is_one_of({8, 16, 32, 64}, q.x.rows))
        reject("q", "has H = {} heads, must be 8, 16, 32 or 64; pad them with heads whose w is 0", q.x.rows);
    if (!is_one_of({32, 64, 128}, q.x.cols))
        reject("q", "has D = {} columns, must be 32, 64 or 128; pad q and the keys with zeros", q.x.cols);
}

void check_shape(const Argument& x, int64_t rows, int64_t cols, const char* meaning) {
    if (!x.has_shape(rows, cols))
        reject(x.name, "has shape [{}, {}], must be [{}, {}] ({}); pass memory of that shape", x.x.rows, x.x.cols, rows,
               cols, meaning);
}

void check_weights(const Argument& w, const Argument& q) {
    w.check_dtype(DType::F32, "convert it");
    check_shape(w, q.count, q.x.rows, "one for each query and head of q");
}

void check_logits(const Argument& d) {
    if (d.x.dtype != DType::F32 && d.x.dtype != DType::BF16)
        reject("d", "has dtype {}, must be f32 or bf16; pass memory of one of them", name_of(d.x.dtype));
    d.check_extents();
}

void check_integers(const Argument& x) {
    x.check_dtype(DType::I32, "convert it");
    x.check_extents();
}

void check_options(const MqaOptions& options, bool paged) {
    const auto form = static_cast<int32_t>(options.form), relu = static_cast<int32_t>(options.relu);
    if (paged && options.form == LogitsForm::Compressed)
        reject("form", "is compressed, but rows of pages begin at key 0; pass 0 (filled) or 1 (untouched)");
    if (form < 0 || form > 2)
        reject("form", "is {}, must be 0 (filled), 1 (untouched) or 2 (compressed); pass one of them", form);
    if (relu < 0 || relu > 1) reject("relu", "is {}, must be 0 (exact) or 1 (abs); pass one of them", relu);
    plan::check_num_sms(options.num_sms);
}

/// What an operand is aligned to on a GPU, in bytes: its address, and its rows and stacks.
struct Placed {
    Argument x;
    int64_t address, rows;
};

/// All on the device of d, which is apart from the others.
void check_places(const Argument& d, std::initializer_list<Placed> others) {
    const bool cuda = d.x.device.type == DeviceType::Cuda;
    d.check_device(d.x.device, "d");
    d.check_pointer(cuda ? size_of(d.x.dtype) : 1);
    d.check_rows(1);
    for (const auto& [x, address, rows] : others) {
        x.check_device(d.x.device, d.name);
        if (x.count == 0) continue;
        x.check_pointer(cuda ? address : 1);
        x.check_rows(cuda ? rows : 1);
        x.check_apart_from(d);
    }
}

constexpr int64_t kTma = Argument::kAlignment, kNumber = sizeof(int32_t);

}  // namespace

void check_mqa_operands(const MqaCall& call) {
    const Argument q{"q", call.q.matrix, call.q.count, call.q.stride}, k{"k", call.k}, sfk{"sfk", call.sfk};
    const Argument w{"w", call.w}, starts{"starts", call.starts}, ends{"ends", call.ends};
    check_queries(q);
    k.check_dtype(DType::E4M3, "quantise it");
    k.check_extents();
    if (k.x.cols != q.x.cols)
        reject("k", "has {} columns, but q has D = {}; q is [S, H, D], k is [Skv, D]", k.x.cols, q.x.cols);
    sfk.check_dtype(DType::F32, "convert it");
    check_shape(sfk, 1, k.x.rows, "one for each key");
    check_weights(w, q);
    for (const Argument& x : {starts, ends}) {
        check_integers(x);
        check_shape(x, 1, q.count, "one for each query");
    }
    check_options(call.options, false);
}

void check_mqa_places(const MqaCall& call, const Argument& output) {
    const Argument q{"q", call.q.matrix, call.q.count, call.q.stride}, k{"k", call.k}, sfk{"sfk", call.sfk};
    const Argument w{"w", call.w}, starts{"starts", call.starts}, ends{"ends", call.ends};
    check_places(
        output,
        {{q, kTma, kTma}, {k, kTma, kTma}, {sfk, kTma, 1}, {w, kNumber, 1}, {starts, kNumber, 1}, {ends, kNumber, 1}});
}

void check_mqa(const MqaCall& call) {
    const ConstMatrix logits = call.d;
    const Argument k{"k", call.k}, d{"d", logits};
    check_mqa_operands(call);
    check_logits(d);
    if (d.x.rows != call.q.count)
        reject("d", "has {} rows, but q has {} queries; pass memory with a row for each", d.x.rows, call.q.count);
    if (call.options.form != LogitsForm::Compressed && d.x.cols != k.x.rows)
        reject("d",
               "has {} columns, but k has {} rows; pass memory with a column for each key, or ask for compressed "
               "rows",
               d.x.cols, k.x.rows);
    check_mqa_places(call, d);
}

namespace {

void check_lengths(const Argument& lengths, int64_t requests, int64_t queries_each) {
    check_integers(lengths);
    if (lengths.x.rows != requests)
        reject("lengths", "has {} rows, but there are {} requests; pass a row for each", lengths.x.rows, requests);
    if (lengths.x.cols != 1 && lengths.x.cols != queries_each)
        reject("lengths", "has {} columns, but a request has {} queries; pass a column, or one for each query",
               lengths.x.cols, queries_each);
}

void check_schedule(const Argument& schedule) {
    check_integers(schedule);
    if (schedule.x.cols != 2 || schedule.x.rows < 2)
        reject("schedule",
               "has shape [{}, {}], must be [slots + 1, 2] with at least one slot; pass memory of that "
               "shape",
               schedule.x.rows, schedule.x.cols);
}

void check_cache(const Argument& cache, int64_t dim) {
    cache.check_dtype(DType::E4M3, "pass its bytes");
    cache.check_extents();
    const int64_t of_key = dim + kBytesOfScale;
    if (cache.x.cols % of_key != 0 || !is_one_of({4, 16, 32, 64}, cache.x.cols / of_key))
        reject("cache",
               "has pages of {} bytes, must be of P * (D + 4) = P * {}, P of 4, 16, 32 or 64; pass the codes of a "
               "page's keys and then their scales",
               cache.x.cols, of_key);
}

}  // namespace

void check_mqa_operands(const PagedMqaCall& call) {
    const Argument q{"q", call.q.matrix, call.q.count, call.q.stride}, cache{"cache", call.cache}, w{"w", call.w};
    const Argument lengths{"lengths", call.lengths}, table{"block_table", call.block_table};
    check_queries(q);
    check_cache(cache, q.x.cols);
    check_weights(w, q);
    check_integers(table);
    const int64_t requests = table.x.rows, each = requests > 0 ? call.queries_each() : 1;
    if (requests == 0 ? q.count > 0 : q.count != requests * each || each < 1 || each > kMostQueriesEach)
        reject("q", "has {} queries, but block_table has {} rows; each request has 1 to {}, all as many", q.count,
               requests, kMostQueriesEach);
    check_lengths(lengths, requests, each);
    check_options(call.options, true);
    if (requests > 0 && table.x.cols > 0 && cache.x.rows == 0)
        reject("cache", "has no page, but block_table has {} for each request; pass the pages", table.x.cols);
}

void check_mqa_places(const PagedMqaCall& call, const Argument& output) {
    const Argument q{"q", call.q.matrix, call.q.count, call.q.stride}, cache{"cache", call.cache}, w{"w", call.w};
    const Argument lengths{"lengths", call.lengths}, table{"block_table", call.block_table};
    check_places(output,
                 {{q, kTma, kTma}, {cache, kTma, kTma}, {w, kNumber, 1}, {lengths, kNumber, 1}, {table, kNumber, 1}});
}

void check_mqa(const PagedMqaCall& call) {
    const ConstMatrix logits = call.d;
    const Argument schedule{"schedule", call.schedule}, d{"d", logits};
    check_mqa_operands(call);
    check_logits(d);
    if (d.x.rows != call.q.count)
        reject("d", "has {} rows, but q has {} queries; pass memory with a row for each", d.x.rows, call.q.count);
    const bool scheduled = schedule.x.data || schedule.x.rows != 0;
    if (scheduled) check_schedule(schedule);
    check_mqa_places(call, d);
    if (scheduled) check_places(d, {{schedule, kNumber, 1}});
}

void check_mqa(const PagedMqaScheduleCall& call) {
    const ConstMatrix out = call.schedule;
    const Argument lengths{"lengths", call.lengths}, schedule{"schedule", out};
    if (call.queries_each < 1 || call.queries_each > kMostQueriesEach)
        reject("queries_each", "is {}, must be from 1 to {}; pass the queries of a request", call.queries_each,
               kMostQueriesEach);
    check_lengths(lengths, call.lengths.rows, call.queries_each);
    check_schedule(schedule);
    check_places(schedule, {{lengths, kNumber, 1}});
}

void check_mqa(const MqaShape& shape) {
    const std::pair<const char*, int64_t> extents[] = {{"requests", shape.requests}, {"queries", shape.queries},
                                                       {"keys", shape.keys},         {"heads", shape.heads},
                                                       {"dim", shape.dim},           {"page_size", shape.page_size}};
    for (const auto& [name, x] : extents)
        if (x < 1 || x > INT32_MAX) reject(name, "is {}, must be from 1 to {}; pass that of the call", x, INT32_MAX);
    const ConstMatrix heads{nullptr, DType::E4M3, shape.heads, shape.dim, shape.dim, 1, {}};
    const ConstMatrix pages{nullptr, DType::E4M3, 1, shape.page_size * (shape.dim + kBytesOfScale)};
    const ConstMatrix logits{nullptr, shape.dtype, shape.rows(), shape.keys};
    check_queries({"q", heads, shape.rows()});
    if (shape.paged) check_cache({"cache", pages}, shape.dim);
    if (shape.paged && (shape.queries < 1 || shape.queries > kMostQueriesEach))
        reject("q", "has {} queries for a request, must have 1 to {}; make more requests of them", shape.queries,
               kMostQueriesEach);
    check_logits({"d", logits});
    check_options({.form = shape.form, .relu = shape.relu}, shape.paged);
}

}  // namespace finegemm
