// Calls of an indexer's scores that are wrong, for misuse_test.cpp, and right ones in C. Layer tests.
#pragma once

#include <limits>

#include "api/calls.h"

namespace finegemm::test {

/// 3 queries of 8 heads, D = 32, and 40 keys.
struct MqaLogitsCall {
    Buffer<uint8_t> q_data{DType::E4M3, 3 * 8, 32}, k_data{DType::E4M3, 40, 32};
    Buffer<float> sfk_data{DType::F32, 1, 40}, w_data{DType::F32, 3, 8}, d_data{DType::F32, 3, 40};
    Buffer<int32_t> starts_data{DType::I32, 1, 3}, ends_data{DType::I32, 1, 3};
    finegemm_mqa_logits_args args{};
    finegemm_mqa_options options{sizeof(finegemm_mqa_options), 0, 0, 0, 0, 0, nullptr, nullptr, nullptr};
    finegemm_error error{};

    MqaLogitsCall() {
        for (int64_t r = 0; r < 24; ++r)
            for (int64_t c = 0; c < 32; ++c) q_data.at(r, c) = e4m3_of_float(static_cast<float>(r - c) / 8);
        for (int64_t r = 0; r < 40; ++r) {
            sfk_data.at(0, r) = 0.25f;
            for (int64_t c = 0; c < 32; ++c) k_data.at(r, c) = e4m3_of_float(static_cast<float>(c - r) / 8);
        }
        for (int64_t i = 0; i < 3; ++i) {
            starts_data.at(0, i) = static_cast<int32_t>(i), ends_data.at(0, i) = static_cast<int32_t>(10 * i + 20);
            for (int64_t h = 0; h < 8; ++h) w_data.at(i, h) = static_cast<float>(h - 2);
        }
        finegemm_matrix q = c_matrix(ConstMatrix(q_data.view()));
        q.rows = 8;
        args = {.q = {q, 3, 8 * 32},
                .k = c_matrix(ConstMatrix(k_data.view())),
                .sfk = c_matrix(ConstMatrix(sfk_data.view())),
                .w = c_matrix(ConstMatrix(w_data.view())),
                .starts = c_matrix(ConstMatrix(starts_data.view())),
                .ends = c_matrix(ConstMatrix(ends_data.view())),
                .d = c_matrix(ConstMatrix(d_data.view()))};
    }
    int32_t run(finegemm_context* context) { return finegemm_mqa_logits(context, &args, &options, &error); }
};

/// Queries of an MqaLogitsCall for 3 requests, one each, whose keys are in two pages of 16 each.
struct PagedMqaLogitsCall {
    MqaLogitsCall rows;
    Buffer<uint8_t> cache_data{DType::E4M3, 7, 16 * 36};
    Buffer<int32_t> lengths_data{DType::I32, 3, 1}, table_data{DType::I32, 3, 2}, schedule_data{DType::I32, 5, 2};
    finegemm_paged_mqa_logits_args args{};
    finegemm_mqa_options options = rows.options;
    finegemm_error error{};

    PagedMqaLogitsCall() {
        for (int64_t b = 0; b < 3; ++b) {
            lengths_data.at(b, 0) = static_cast<int32_t>(10 * b + 1);
            for (int64_t p = 0; p < 2; ++p) table_data.at(b, p) = static_cast<int32_t>(6 - 2 * b - p);
        }
        for (int64_t p = 0; p < 7; ++p) std::fill_n(&cache_data.at(p, 0), 16 * 36, uint8_t{0x38});
        for (int64_t s = 0; s < 10; ++s) schedule_data.at(s / 2, s % 2) = 0;
        args = {.q = rows.args.q,
                .cache = c_matrix(ConstMatrix(cache_data.view())),
                .w = rows.args.w,
                .lengths = c_matrix(ConstMatrix(lengths_data.view())),
                .block_table = c_matrix(ConstMatrix(table_data.view())),
                .schedule = c_matrix(ConstMatrix(schedule_data.view())),
                .d = rows.args.d};
    }
    int32_t run(finegemm_context* context) { return finegemm_paged_mqa_logits(context, &args, &options, &error); }
};

template <typename Call>
struct MqaMisuse {
    const char* name;
    void (*spoil)(Call&);
};

inline void to_gpu(finegemm_matrix& x) { x.device_type = FINEGEMM_CUDA; }
inline void all_to_gpu(finegemm_mqa_logits_args& a) {
    for (finegemm_matrix* x : {&a.q.matrix, &a.k, &a.sfk, &a.w, &a.starts, &a.ends, &a.d}) to_gpu(*x);
}
inline void all_to_gpu(finegemm_paged_mqa_logits_args& a) {
    for (finegemm_matrix* x : {&a.q.matrix, &a.cache, &a.w, &a.lengths, &a.block_table, &a.schedule, &a.d}) to_gpu(*x);
}

inline const MqaMisuse<MqaLogitsCall> kMqaLogits[] = {
    {"q is bf16", [](MqaLogitsCall& c) { c.args.q.matrix.dtype = FINEGEMM_BF16; }},
    {"q has 12 heads", [](MqaLogitsCall& c) { c.args.q.matrix.rows = 12; }},
    {"q has 48 columns", [](MqaLogitsCall& c) { c.args.q.matrix.cols = 48; }},
    {"q has -1 queries", [](MqaLogitsCall& c) { c.args.q.count = -1; }},
    {"k has 64 columns", [](MqaLogitsCall& c) { set_shape(c.args.k, 20, 64); }},
    {"sfk has 39", [](MqaLogitsCall& c) { c.args.sfk.cols = 39; }},
    {"sfk is a column", [](MqaLogitsCall& c) { set_shape(c.args.sfk, 40, 1); }},
    {"w is bf16", [](MqaLogitsCall& c) { c.args.w.dtype = FINEGEMM_BF16; }},
    {"w has 4 columns", [](MqaLogitsCall& c) { c.args.w.cols = 4; }},
    {"w is transposed", [](MqaLogitsCall& c) { set_strides(c.args.w, 1, 3); }},
    {"starts are f32", [](MqaLogitsCall& c) { c.args.starts.dtype = FINEGEMM_F32; }},
    {"ends are two", [](MqaLogitsCall& c) { c.args.ends.cols = 2; }},
    {"d is f16", [](MqaLogitsCall& c) { c.args.d.dtype = FINEGEMM_F16; }},
    {"d has 2 rows", [](MqaLogitsCall& c) { c.args.d.rows = 2; }},
    {"d has 39 columns", [](MqaLogitsCall& c) { c.args.d.cols = 39; }},
    {"rows of d overlap", [](MqaLogitsCall& c) { c.args.d.row_stride = 39; }},
    {"d is in k", [](MqaLogitsCall& c) { c.args.d.data = c.args.k.data; }},
    {"w is null", [](MqaLogitsCall& c) { c.args.w.data = nullptr; }},
    {"ends are on a GPU", [](MqaLogitsCall& c) { to_gpu(c.args.ends); }},
    {"q at an odd address of a GPU",
     [](MqaLogitsCall& c) { all_to_gpu(c.args), c.args.q.matrix.data = reinterpret_cast<void*>(uintptr_t{0x1004}); }},
    {"rows of k at odd places of a GPU",
     [](MqaLogitsCall& c) {
         all_to_gpu(c.args), c.args.k.row_stride = 40, c.args.k.rows = c.args.sfk.cols = 20, c.args.d.cols = 20;
     }},
    {"form is 3", [](MqaLogitsCall& c) { c.options.form = 3; }},
    {"relu is 2", [](MqaLogitsCall& c) { c.options.relu = 2; }},
    {"num_sms is -1", [](MqaLogitsCall& c) { c.options.num_sms = -1; }},
    {"options have half their size", [](MqaLogitsCall& c) { c.options.struct_size /= 2; }},
    {"a start is -1", [](MqaLogitsCall& c) { c.options.check_values = FINEGEMM_ON, c.starts_data.at(0, 1) = -1; }},
    {"an end is 41", [](MqaLogitsCall& c) { c.options.check_values = FINEGEMM_ON, c.ends_data.at(0, 2) = 41; }},
    {"a window has more keys than d has columns",
     [](MqaLogitsCall& c) {
         c.options.check_values = FINEGEMM_ON, c.options.form = FINEGEMM_COMPRESSED, c.args.d.cols = 29;
     }},
};

inline const MqaMisuse<PagedMqaLogitsCall> kPagedMqaLogits[] = {
    {"cache is f32", [](PagedMqaLogitsCall& c) { c.args.cache.dtype = FINEGEMM_F32; }},
    {"pages have 575 bytes", [](PagedMqaLogitsCall& c) { c.args.cache.cols = 575; }},
    {"pages of 8", [](PagedMqaLogitsCall& c) { c.args.cache.cols = 8 * 36; }},
    {"no page", [](PagedMqaLogitsCall& c) { c.args.cache.rows = 0; }},
    {"block_table has 2 rows", [](PagedMqaLogitsCall& c) { c.args.block_table.rows = 2; }},
    {"block_table has none", [](PagedMqaLogitsCall& c) { c.args.block_table.rows = 0; }},
    {"lengths have 2 rows", [](PagedMqaLogitsCall& c) { c.args.lengths.rows = 2; }},
    {"lengths have 2 columns", [](PagedMqaLogitsCall& c) { c.args.lengths.cols = 2; }},
    {"lengths are f32", [](PagedMqaLogitsCall& c) { c.args.lengths.dtype = FINEGEMM_F32; }},
    {"d has 4 rows", [](PagedMqaLogitsCall& c) { c.args.d.rows = 4; }},
    {"schedule has 3 columns", [](PagedMqaLogitsCall& c) { c.args.schedule.cols = 3; }},
    {"schedule is null", [](PagedMqaLogitsCall& c) { c.args.schedule.data = nullptr; }},
    {"pages at odd places of a GPU",
     [](PagedMqaLogitsCall& c) { all_to_gpu(c.args), c.args.cache.rows = 6, c.args.cache.row_stride = 578; }},
    {"form is compressed", [](PagedMqaLogitsCall& c) { c.options.form = FINEGEMM_COMPRESSED; }},
    {"a length is 33",
     [](PagedMqaLogitsCall& c) { c.options.check_values = FINEGEMM_ON, c.lengths_data.at(2, 0) = 33; }},
    {"a length is -1",
     [](PagedMqaLogitsCall& c) { c.options.check_values = FINEGEMM_ON, c.lengths_data.at(0, 0) = -1; }},
    {"d is narrower than a length",
     [](PagedMqaLogitsCall& c) { c.options.check_values = FINEGEMM_ON, c.args.d.cols = 20; }},
    {"lengths descend",
     [](PagedMqaLogitsCall& c) {
         c.options.check_values = FINEGEMM_ON;
         set_shape(c.args.lengths, 1, 3), set_shape(c.args.block_table, 1, 2);
         c.lengths_data.at(1, 0) = 30;
     }},
    {"a page is 7", [](PagedMqaLogitsCall& c) { c.options.check_values = FINEGEMM_ON, c.table_data.at(2, 1) = 7; }},
    {"a page is -1", [](PagedMqaLogitsCall& c) { c.options.check_values = FINEGEMM_ON, c.table_data.at(0, 0) = -1; }},
};

/// What the library says to each, by name.
template <typename Sentences>
Sentences mqa_misuses() {
    Sentences said;
    const CContext context;
    const auto record = [&]<typename Call>(std::string_view of, const MqaMisuse<Call>& m) {
        Call call;
        m.spoil(call);
        call.run(context.get());
        said[fmt::format("{}: {}", of, m.name)] = {call.error.code, call.error.message};
    };
    for (const auto& m : kMqaLogits) record("mqa_logits", m);
    for (const auto& m : kPagedMqaLogits) record("paged_mqa_logits", m);
    finegemm_error e;
    const auto schedule = [&](const char* name, auto spoil) {
        PagedMqaLogitsCall call;
        finegemm_paged_mqa_schedule_args args{
            .lengths = call.args.lengths, .queries_each = 1, .schedule = call.args.schedule};
        spoil(args);
        finegemm_paged_mqa_schedule(context.get(), &args, nullptr, &e);
        said[fmt::format("paged_mqa_schedule: {}", name)] = {e.code, e.message};
    };
    using Args = finegemm_paged_mqa_schedule_args;
    schedule("9 queries", [](Args& a) { a.queries_each = 9; });
    schedule("no slot", [](Args& a) { a.schedule.rows = 1; });
    schedule("lengths of 2 queries", [](Args& a) { a.lengths.cols = 2, a.queries_each = 3; });
    schedule("is e4m3", [](Args& a) { a.schedule.dtype = FINEGEMM_E4M3; });
    schedule("is its lengths", [](Args& a) { a.schedule.data = a.lengths.data; });
    finegemm_mqa_logits(context.get(), nullptr, nullptr, &e), said["mqa_logits: args are null"] = {e.code, e.message};
    return said;
}

}  // namespace finegemm::test
