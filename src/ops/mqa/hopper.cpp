// An indexer's scores as launches. Layer engine.
#include "ops/mqa/hopper.h"

#include <algorithm>
#include <bit>

#include <finegemm/core/tma_box.h>
#include <finegemm/error.h>
#include <fmt/format.h>

#include "cuda/tensor_map.h"
#include "plan/elements.h"

namespace finegemm {

namespace {

constexpr int64_t kScaleBytes = sizeof(float);

/// Rows of `dim` codes, as many in a box as are multiplied, or copied, at once; swizzled over their width.
TmaBox box_of(int64_t rows, int64_t dim) {
    const auto width = static_cast<uint32_t>(dim);
    return {.rows = static_cast<uint32_t>(rows), .cols = width, .swizzle = static_cast<Swizzle>(width)};
}

/// The stride of what there is one of may be anything: then it is that of tight rows.
uint64_t stride_of(int64_t count, int64_t stride, int64_t tight) {
    return static_cast<uint64_t>(count > 1 ? stride : tight);
}

/// Each query is a matrix of its heads.
TensorMap queries_map(const ConstStack& q, const cuda::Driver& driver) {
    const ConstMatrix& m = q.matrix;
    const uint64_t row = stride_of(m.rows, m.row_stride, m.cols);
    return cuda::encode(driver,
                        {.data = m.data,
                         .rows = static_cast<uint64_t>(m.rows),
                         .cols = static_cast<uint64_t>(m.cols),
                         .row_stride_bytes = row,
                         .count = static_cast<uint64_t>(q.count),
                         .stride_bytes = stride_of(q.count, q.stride, m.rows * static_cast<int64_t>(row))},
                        box_of(m.rows, m.cols));
}

/// What rows of logits and weights are told by.
MqaParams common_params(const ConstStack& q, const ConstMatrix& w, const Matrix& d, const MqaOptions& options,
                        const cuda::Driver& driver) {
    MqaParams p{};
    p.q = queries_map(q, driver);
    p.weights = static_cast<const float*>(w.data);
    p.weights_stride = w.row_stride;
    p.logits = static_cast<uint8_t*>(d.data);
    p.logits_stride = d.row_stride * size_of(d.dtype);
    p.rows = static_cast<uint32_t>(q.count);
    p.width = static_cast<uint32_t>(d.cols);
    p.compressed = options.form == LogitsForm::Compressed;
    p.fill = options.form == LogitsForm::Filled;
    p.bf16 = d.dtype == DType::BF16;
    return p;
}

/// A CTA for each SM that may be used.
uint32_t grid_of(const MqaOptions& options, uint32_t sms) {
    return options.num_sms > 0 ? std::min(static_cast<uint32_t>(options.num_sms), sms) : sms;
}

template <typename... Others>
MqaCallKey key_of(const ConstStack& q, const Matrix& d, const MqaOptions& options, const Others&... others) {
    MqaCallKey key{sizeof...(others), static_cast<int64_t>(options.form), static_cast<int64_t>(options.relu),
                   options.num_sms,   static_cast<int64_t>(d.dtype),      q.count,
                   q.stride};
    size_t at = 7;
    for (const ConstMatrix& x : {q.matrix, static_cast<ConstMatrix>(d), others...}) {
        key[at++] = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data));
        key[at++] = x.rows, key[at++] = x.cols, key[at++] = x.row_stride;
    }
    return key;
}

}  // namespace

MqaCallKey call_key(const MqaCall& call) {
    return key_of(call.q, call.d, call.options, call.k, call.sfk, call.w, call.starts, call.ends);
}

MqaCallKey call_key(const PagedMqaCall& call) {
    return key_of(call.q, call.d, call.options, call.cache, call.w, call.lengths, call.block_table);
}

MqaConfig mqa_config(int64_t heads, int64_t dim, MqaKeys keys, Relu relu) {
    const bool abs = relu == Relu::Abs && has_abs_form(keys, static_cast<uint32_t>(heads));
    return {.heads = static_cast<uint32_t>(heads),
            .dim = static_cast<uint32_t>(dim),
            .keys = keys,
            .form = abs ? MqaForm::Abs : MqaForm::Exact};
}

MqaLaunch launch_of(const MqaCall& call, const cuda::Driver& driver, uint32_t sms) {
    const MqaConfig config = mqa_config(call.heads(), call.dim(), MqaKeys::Rows, call.options.relu);
    MqaParams p = common_params(call.q, call.w, call.d, call.options, driver);
    const auto keys = static_cast<uint64_t>(call.keys());
    p.k = cuda::encode(driver,
                       {.data = call.k.data,
                        .rows = keys,
                        .cols = config.dim,
                        .row_stride_bytes = stride_of(call.k.rows, call.k.row_stride, config.dim)},
                       box_of(kMqaTileKeys, config.dim));
    // One row, whose end TMA knows.
    p.k_scales = cuda::encode(
        driver,
        {.data = call.sfk.data, .rows = 1, .cols = keys, .row_stride_bytes = (keys * kScaleBytes + 15) / 16 * 16},
        {.rows = 1, .cols = kMqaTileKeys, .element_bytes = kScaleBytes});
    p.starts = static_cast<const int32_t*>(call.starts.data);
    p.ends = static_cast<const int32_t*>(call.ends.data);
    p.keys = static_cast<uint32_t>(keys);
    p.item_queries = config.queries();
    p.items = ceil_div(p.rows, p.item_queries);
    p.item_parts = 1;
    if (uint64_t{p.items} * mqa_cost(config, ceil_div(p.keys, kMqaTileKeys)) > UINT32_MAX)
        throw Error(
            Errc::Unsupported,
            fmt::format("q: has {} queries of {} keys, whose tiles a launch cannot number; split the queries over "
                        "several calls",
                        p.rows, p.keys));
    return {config, p, grid_of(call.options, sms)};
}

MqaLaunch launch_of(const PagedMqaCall& call, const cuda::Driver& driver, uint32_t sms) {
    const MqaConfig config = mqa_config(call.heads(), call.dim(), MqaKeys::Pages, call.options.relu);
    MqaParams p = common_params(call.q, call.w, call.d, call.options, driver);
    const ConstMatrix& cache = call.cache;
    const int64_t page_keys = call.page_size();
    if (cache.rows > 0)
        p.k = cuda::encode(driver,
                           {.data = cache.data,
                            .rows = static_cast<uint64_t>(page_keys),
                            .cols = config.dim,
                            .row_stride_bytes = config.dim,
                            .count = static_cast<uint64_t>(cache.rows),
                            .stride_bytes = stride_of(cache.rows, cache.row_stride, cache.cols)},
                           box_of(page_keys, config.dim));
    p.pages = static_cast<const uint8_t*>(cache.data);
    p.page_stride = static_cast<int64_t>(stride_of(cache.rows, cache.row_stride, cache.cols));
    p.page_count = static_cast<uint32_t>(cache.rows);
    p.page_log2 = static_cast<uint32_t>(std::countr_zero(static_cast<uint64_t>(page_keys)));
    p.ends = static_cast<const int32_t*>(call.lengths.data);
    p.ends_stride = call.lengths.row_stride;
    p.own_lengths = call.has_own_lengths();
    p.table = static_cast<const int32_t*>(call.block_table.data);
    p.table_stride = call.block_table.row_stride;
    const int64_t room = cache.rows > 0 ? call.block_table.cols * page_keys : 0;
    p.keys = static_cast<uint32_t>(std::min<int64_t>(room, INT32_MAX));
    p.items = static_cast<uint32_t>(call.requests());
    p.item_queries = static_cast<uint32_t>(call.queries_each());
    p.item_parts = ceil_div(p.item_queries, config.queries());
    return {config, p, grid_of(call.options, sms)};
}

MqaScheduleLaunch launch_of(const PagedMqaScheduleCall& call) {
    const ConstMatrix& lengths = call.lengths;
    const auto* data = static_cast<const int32_t*>(lengths.data);
    return {.config = {},
            .params = {.lengths = data ? data + (lengths.cols - 1) : nullptr,
                       .lengths_stride = lengths.row_stride,
                       .schedule = static_cast<int32_t*>(call.schedule.data),
                       .schedule_stride = call.schedule.row_stride,
                       .requests = static_cast<uint32_t>(lengths.rows),
                       .slots = static_cast<uint32_t>(call.slots()),
                       .atoms = mqa_atoms(static_cast<uint32_t>(call.queries_each))},
            .grid = 1};
}

}  // namespace finegemm
