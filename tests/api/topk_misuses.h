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

inline const MqaMisuse<TopkCallInC> kTopk[] = {
    {"logits are bf16", [](TopkCallInC& c) { c.args.logits.dtype = FINEGEMM_BF16; }},
    {"logits are transposed", [](TopkCallInC& c) { set_strides(c.args.logits, 1, 3); }},
    {"starts are two", [](TopkCallInC& c) { c.args.starts.cols = 2; }},
    {"ends are f32", [](TopkCallInC& c) { c.args.ends.dtype = FINEGEMM_F32; }},
    {"ends are on a GPU", [](TopkCallInC& c) { to_gpu(c.args.ends); }},
    {"indices are f32", [](TopkCallInC& c) { c.args.out.indices.dtype = FINEGEMM_F32; }},
    {"indices have 2 rows", [](TopkCallInC& c) { c.args.out.indices.rows = 2; }},
    {"k is 0", [](TopkCallInC& c) { c.args.out.indices.cols = 0; }},
    {"k is 2049", [](TopkCallInC& c) { c.args.out.indices.cols = 2049; }},
    {"rows of indices overlap", [](TopkCallInC& c) { c.args.out.indices.row_stride = 4; }},
    {"values have 4 columns", [](TopkCallInC& c) { c.args.out.values.cols = 4; }},
    {"values without indices", [](TopkCallInC& c) { c.args.out.indices = {}; }},
    {"histogram has 255 columns", [](TopkCallInC& c) { c.args.out.histogram.cols = 255; }},
    {"histogram is in indices", [](TopkCallInC& c) { c.args.out.histogram.data = c.args.out.indices.data; }},
    {"indices are in logits", [](TopkCallInC& c) { c.args.out.indices.data = c.args.logits.data; }},
    {"nothing is asked for", [](TopkCallInC& c) { c.args.out = {}; }},
    {"values are on a GPU", [](TopkCallInC& c) { to_gpu(c.args.out.values); }},
    {"num_sms is -1", [](TopkCallInC& c) { c.options.num_sms = -1; }},
    {"options have a reserved field", [](TopkCallInC& c) { c.options.reserved = 1; }},
};

inline const MqaMisuse<MqaTopkCallInC> kMqaTopk[] = {
    {"q has 12 heads", [](MqaTopkCallInC& c) { c.args.q.matrix.rows = 12; }},
    {"ends are two", [](MqaTopkCallInC& c) { c.args.ends.cols = 2; }},
    {"indices have 2 rows", [](MqaTopkCallInC& c) { c.args.out.indices.rows = 2; }},
    {"indices are in k", [](MqaTopkCallInC& c) { c.args.out.indices.data = c.args.k.data; }},
    {"logits are bf16", [](MqaTopkCallInC& c) { c.args.logits.dtype = FINEGEMM_BF16; }},
    {"logits have 39 columns", [](MqaTopkCallInC& c) { c.args.logits.cols = 39; }},
    {"logits have 2 rows", [](MqaTopkCallInC& c) { c.args.logits.rows = 2; }},
    {"logits are in values", [](MqaTopkCallInC& c) { c.args.logits.data = c.args.out.values.data; }},
    {"form is compressed", [](MqaTopkCallInC& c) { c.options.form = FINEGEMM_COMPRESSED; }},
    {"relu is 2", [](MqaTopkCallInC& c) { c.options.relu = 2; }},
    {"an end is 41", [](MqaTopkCallInC& c) { c.options.check_values = FINEGEMM_ON, c.rows.ends_data.at(0, 2) = 41; }},
};

inline const MqaMisuse<PagedMqaTopkCallInC> kPagedMqaTopk[] = {
    {"pages of 8", [](PagedMqaTopkCallInC& c) { c.args.cache.cols = 8 * 36; }},
    {"keys are -1", [](PagedMqaTopkCallInC& c) { c.args.keys = -1; }},
    {"keys are given with logits", [](PagedMqaTopkCallInC& c) { c.args.keys = 20, c.args.logits = c.pages.args.d; }},
    {"values are in cache", [](PagedMqaTopkCallInC& c) { c.args.out.values.data = c.args.cache.data; }},
    {"a page is 7",
     [](PagedMqaTopkCallInC& c) { c.options.check_values = FINEGEMM_ON, c.pages.table_data.at(2, 1) = 7; }},
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
    finegemm_topk(context.get(), nullptr, nullptr, &e), said["topk: args are null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
