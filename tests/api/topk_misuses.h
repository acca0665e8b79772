// Calls of selections that are wrong, for misuse_test.cpp, and right ones in C. Layer tests.
#pragma once

#include <finegemm/topk/topk.h>

#include "api/mqa_misuses.h"

namespace finegemm::test {

/// Memory of 3 rows for what is selected, and options.
struct TopkInC {
    Buffer<int32_t> indices{DType::I32, 3, 5}, histogram{DType::I32, 3, kTopkHistogramBins};
    Buffer<float> values{DType::F32, 3, 5};
    finegemm_topk_options options{.struct_size = sizeof(finegemm_topk_options),
                                  .sorted = 1,
                                  .form = 0,
                                  .relu = 0,
                                  .check_values = 0,
                                  .num_sms = 0,
                                  .pdl = 0,
                                  .reserved = 0,
                                  .stream = nullptr,
                                  .poll = nullptr,
                                  .poll_data = nullptr};
    finegemm_error error{};

    finegemm_topk_outputs outputs() {
        return {c_matrix(ConstMatrix(indices.view())), c_matrix(ConstMatrix(values.view())),
                c_matrix(ConstMatrix(histogram.view()))};
    }
};

/// 3 rows of 40 numbers, each less than the one before it.
struct TopkCallInC : TopkInC {
    Buffer<float> logits{DType::F32, 3, 40};
    Buffer<int32_t> starts{DType::I32, 1, 3}, ends{DType::I32, 1, 3};
    finegemm_topk_args args{};

    TopkCallInC() {
        for (int64_t i = 0; i < 3; ++i) {
            starts.at(0, i) = static_cast<int32_t>(i), ends.at(0, i) = static_cast<int32_t>(i + 3 * i);
            for (int64_t j = 0; j < 40; ++j) logits.at(i, j) = static_cast<float>(-j);
        }
        args = {.logits = c_matrix(ConstMatrix(logits.view())),
                .starts = c_matrix(ConstMatrix(starts.view())),
                .ends = c_matrix(ConstMatrix(ends.view())),
                .out = outputs()};
    }
    int32_t run(finegemm_context* context) { return finegemm_topk(context, &args, &options, &error); }
};

struct MqaTopkCallInC : TopkInC {
    MqaLogitsCall rows;
    finegemm_mqa_topk_args args{};

    MqaTopkCallInC() {
        const finegemm_mqa_logits_args& a = rows.args;
        args = {.q = a.q,
                .k = a.k,
                .sfk = a.sfk,
                .w = a.w,
                .starts = a.starts,
                .ends = a.ends,
                .out = outputs(),
                .logits = a.d};
    }
    int32_t run(finegemm_context* context) { return finegemm_mqa_topk(context, &args, &options, &error); }
};

struct PagedMqaTopkCallInC : TopkInC {
    PagedMqaLogitsCall pages;
    finegemm_paged_mqa_topk_args args{};

    PagedMqaTopkCallInC() {
        const finegemm_paged_mqa_logits_args& a = pages.args;
        args = {.q = a.q,
                .cache = a.cache,
                .w = a.w,
                .lengths = a.lengths,
                .block_table = a.block_table,
                .keys = 0,
                .out = outputs(),
                .logits = {}};
    }
    int32_t run(finegemm_context* context) { return finegemm_paged_mqa_topk(context, &args, &options, &error); }
};

/// A call of finegemm_topk with k = 2048.
inline finegemm_topk_shape shape_of(int64_t queries, int64_t keys) {
    return {.struct_size = sizeof(finegemm_topk_shape),
            .paged = 0,
            .k = 2048,
            .requests = 1,
            .queries = queries,
            .keys = keys,
            .heads = 0,
            .dim = 0,
            .page_size = 64,
            .relu = FINEGEMM_RELU_EXACT,
            .form = FINEGEMM_FILLED,
            .logits = 0,
            .histogram = 0,
            .sorted = 0,
            .num_sms = 0,
            .device = "h200"};
}

inline const MqaMisuse<TopkCallInC> kTopk[] = {
    {"logits are bf16", [](TopkCallInC& c) { c.args.logits.dtype = FINEGEMM_BF16; }},
    {"logits are null", [](TopkCallInC& c) { c.args.logits.data = nullptr; }},
    {"logits have 2^31 rows", [](TopkCallInC& c) { c.args.logits.rows = int64_t{1} << 31; }},
    {"rows of logits overlap", [](TopkCallInC& c) { c.args.logits.row_stride = 39; }},
    {"logits are transposed", [](TopkCallInC& c) { set_strides(c.args.logits, 1, 3); }},
    {"starts are two", [](TopkCallInC& c) { c.args.starts.cols = 2; }},
    {"starts are i8", [](TopkCallInC& c) { c.args.starts.dtype = FINEGEMM_I8; }},
    {"ends are null", [](TopkCallInC& c) { c.args.ends.data = nullptr; }},
    {"ends are f32", [](TopkCallInC& c) { c.args.ends.dtype = FINEGEMM_F32; }},
    {"ends are on a GPU", [](TopkCallInC& c) { to_gpu(c.args.ends); }},
    {"indices are f32", [](TopkCallInC& c) { c.args.out.indices.dtype = FINEGEMM_F32; }},
    {"indices have 2 rows", [](TopkCallInC& c) { c.args.out.indices.rows = 2; }},
    {"k is 0", [](TopkCallInC& c) { c.args.out.indices.cols = 0; }},
    {"k is 2049", [](TopkCallInC& c) { c.args.out.indices.cols = 2049; }},
    {"rows of indices overlap", [](TopkCallInC& c) { c.args.out.indices.row_stride = 4; }},
    {"indices are null", [](TopkCallInC& c) { c.args.out.indices.data = nullptr; }},
    {"values are i32", [](TopkCallInC& c) { c.args.out.values.dtype = FINEGEMM_I32; }},
    {"values are in indices", [](TopkCallInC& c) { c.args.out.values.data = c.args.out.indices.data; }},
    {"values have 4 columns", [](TopkCallInC& c) { c.args.out.values.cols = 4; }},
    {"values without indices", [](TopkCallInC& c) { c.args.out.indices = {}; }},
    {"histogram is f32", [](TopkCallInC& c) { c.args.out.histogram.dtype = FINEGEMM_F32; }},
    {"histogram has 2 rows", [](TopkCallInC& c) { c.args.out.histogram.rows = 2; }},
    {"histogram has 255 columns", [](TopkCallInC& c) { c.args.out.histogram.cols = 255; }},
    {"histogram is in indices", [](TopkCallInC& c) { c.args.out.histogram.data = c.args.out.indices.data; }},
    {"indices are in logits", [](TopkCallInC& c) { c.args.out.indices.data = c.args.logits.data; }},
    {"nothing is asked for", [](TopkCallInC& c) { c.args.out = {}; }},
    {"values are on a GPU", [](TopkCallInC& c) { to_gpu(c.args.out.values); }},
    {"num_sms is -1", [](TopkCallInC& c) { c.options.num_sms = -1; }},
    {"sorted is 2", [](TopkCallInC& c) { c.options.sorted = 2; }},
    {"pdl is 2", [](TopkCallInC& c) { c.options.pdl = 2; }},
    {"check_values is 3", [](TopkCallInC& c) { c.options.check_values = 3; }},
    {"options are too small", [](TopkCallInC& c) { c.options.struct_size = 3; }},
    {"options have a reserved field", [](TopkCallInC& c) { c.options.reserved = 1; }},
};

inline const MqaMisuse<MqaTopkCallInC> kMqaTopk[] = {
    {"q has 12 heads", [](MqaTopkCallInC& c) { c.args.q.matrix.rows = 12; }},
    {"ends are two", [](MqaTopkCallInC& c) { c.args.ends.cols = 2; }},
    {"indices have 2 rows", [](MqaTopkCallInC& c) { c.args.out.indices.rows = 2; }},
    {"indices are in k", [](MqaTopkCallInC& c) { c.args.out.indices.data = c.args.k.data; }},
    {"logits are bf16", [](MqaTopkCallInC& c) { c.args.logits.dtype = FINEGEMM_BF16; }},
    {"nothing is asked for but logits", [](MqaTopkCallInC& c) { c.args.out = {}; }},
    {"indices are on a GPU", [](MqaTopkCallInC& c) { to_gpu(c.args.out.indices); }},
    {"logits are on a GPU", [](MqaTopkCallInC& c) { to_gpu(c.args.logits); }},
    {"num_sms is -1", [](MqaTopkCallInC& c) { c.options.num_sms = -1; }},
    {"form is 3", [](MqaTopkCallInC& c) { c.options.form = 3; }},
    {"logits have 39 columns", [](MqaTopkCallInC& c) { c.args.logits.cols = 39; }},
    {"logits have 2 rows", [](MqaTopkCallInC& c) { c.args.logits.rows = 2; }},
    {"logits are in values", [](MqaTopkCallInC& c) { c.args.logits.data = c.args.out.values.data; }},
    {"form is compressed", [](MqaTopkCallInC& c) { c.options.form = FINEGEMM_COMPRESSED; }},
    {"relu is 2", [](MqaTopkCallInC& c) { c.options.relu = 2; }},
    {"an end is 41", [](MqaTopkCallInC& c) { c.options.check_values = FINEGEMM_ON, c.rows.ends_data.at(0, 2) = 41; }},
};

inline const MqaMisuse<PagedMqaTopkCallInC> kPagedMqaTopk[] = {
    {"pages of 8", [](PagedMqaTopkCallInC& c) { c.args.cache.cols = 8 * 36; }},
    {"q has 4 queries", [](PagedMqaTopkCallInC& c) { c.args.q.count = 4; }},
    {"indices have 2 rows", [](PagedMqaTopkCallInC& c) { c.args.out.indices.rows = 2; }},
    {"logits have 2 rows", [](PagedMqaTopkCallInC& c) { c.args.logits = c.pages.args.d, c.args.logits.rows = 2; }},
    {"form is compressed", [](PagedMqaTopkCallInC& c) { c.options.form = FINEGEMM_COMPRESSED; }},
    {"keys are 2^31", [](PagedMqaTopkCallInC& c) { c.args.keys = int64_t{1} << 31; }},
    {"a length is 33",
     [](PagedMqaTopkCallInC& c) { c.options.check_values = FINEGEMM_ON, c.pages.lengths_data.at(1, 0) = 33; }},
    {"keys are -1", [](PagedMqaTopkCallInC& c) { c.args.keys = -1; }},
    {"keys are given with logits", [](PagedMqaTopkCallInC& c) { c.args.keys = 20, c.args.logits = c.pages.args.d; }},
    {"values are in cache", [](PagedMqaTopkCallInC& c) { c.args.out.values.data = c.args.cache.data; }},
    {"a page is 7",
     [](PagedMqaTopkCallInC& c) { c.options.check_values = FINEGEMM_ON, c.pages.table_data.at(2, 1) = 7; }},
};

struct TopkShapeMisuse {
    const char* name;
    void (*spoil)(finegemm_topk_shape&);
};
inline void of_heads(finegemm_topk_shape& s) { s.heads = 64, s.dim = 128; }
inline const TopkShapeMisuse kTopkShapes[] = {
    {"k is 2049", [](finegemm_topk_shape& s) { s.k = 2049; }},
    {"k is 0 without a histogram", [](finegemm_topk_shape& s) { s.k = 0; }},
    {"queries are 0", [](finegemm_topk_shape& s) { s.queries = 0; }},
    {"keys are 2^31", [](finegemm_topk_shape& s) { s.keys = int64_t{1} << 31; }},
    {"logits of numbers", [](finegemm_topk_shape& s) { s.logits = 1; }},
    {"D without heads", [](finegemm_topk_shape& s) { s.dim = 128; }},
    {"pages without heads", [](finegemm_topk_shape& s) { s.paged = 1; }},
    {"12 heads", [](finegemm_topk_shape& s) { of_heads(s), s.heads = 12; }},
    {"9 queries of a request", [](finegemm_topk_shape& s) { of_heads(s), s.paged = 1, s.queries = 9; }},
    {"pages of 8", [](finegemm_topk_shape& s) { of_heads(s), s.paged = 1, s.page_size = 8; }},
    {"form is compressed", [](finegemm_topk_shape& s) { of_heads(s), s.form = FINEGEMM_COMPRESSED; }},
    {"relu is 2", [](finegemm_topk_shape& s) { of_heads(s), s.relu = 2; }},
    {"sorted is 2", [](finegemm_topk_shape& s) { s.sorted = 2; }},
    {"num_sms is -1", [](finegemm_topk_shape& s) { s.num_sms = -1; }},
    {"no such device", [](finegemm_topk_shape& s) { s.device = "b200"; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences topk_misuses() {
    Sentences said;
    const CContext context;
    const auto record = [&]<typename Call>(std::string_view of, const MqaMisuse<Call>& m) {
        Call call;
        m.spoil(call);
        call.run(context.get());
        said[fmt::format("{}: {}", of, m.name)] = {call.error.code, call.error.message};
    };
    for (const auto& m : kTopk) record("topk", m);
    for (const auto& m : kMqaTopk) record("mqa_topk", m);
    for (const auto& m : kPagedMqaTopk) record("paged_mqa_topk", m);
    finegemm_error e;
    for (const auto& m : kTopkShapes) {
        finegemm_topk_shape shape = shape_of(1, 8192);
        m.spoil(shape);
        finegemm_explain_topk(&shape, nullptr, 0, nullptr, &e);
        said[fmt::format("explain_topk: {}", m.name)] = {e.code, e.message};
    }
    finegemm_explain_topk(nullptr, nullptr, 0, nullptr, &e), said["explain_topk: shape is null"] = {e.code, e.message};
    finegemm_topk(context.get(), nullptr, nullptr, &e), said["topk: args are null"] = {e.code, e.message};
    finegemm_mqa_topk(context.get(), nullptr, nullptr, &e), said["mqa_topk: args are null"] = {e.code, e.message};
    finegemm_paged_mqa_topk(context.get(), nullptr, nullptr, &e);
    said["paged_mqa_topk: args are null"] = {e.code, e.message};
    TopkCallInC call;
    finegemm_topk(nullptr, &call.args, nullptr, &e), said["topk: context is null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
