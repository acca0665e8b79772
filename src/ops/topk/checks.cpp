// Argument checks of selections. Layer api.
#include "ops/topk/checks.h"

#include <finegemm/topk/topk.h>

#include "api/argument.h"
#include "ops/mqa/checks.h"
#include "plan/elements.h"
#include "plan/fields.h"

namespace finegemm {

namespace {

constexpr int64_t kNumber = sizeof(int32_t);

void check_shape(const Argument& x, int64_t rows, int64_t cols, const char* meaning) {
    x.check_extents();
    if (!x.has_shape(rows, cols))
        reject(x.name, "has shape [{}, {}], must be [{}, {}] ({}); pass memory of that shape", x.x.rows, x.x.cols, rows,
               cols, meaning);
}

/// Types and shapes of what is written.
void check_outputs(const TopkOutputs& out, int64_t rows) {
    const ConstMatrix i = out.indices, v = out.values, h = out.histogram;
    const Argument indices{"indices", i}, values{"values", v}, histogram{"histogram", h};
    if (!is_given(i) && !is_given(h))
        reject("indices", "is left out, and so is histogram; pass one of them, or ask for logits alone");
    if (is_given(i)) {
        indices.check_dtype(DType::I32, "pass memory of it");
        indices.check_extents();
        if (i.cols < 1 || i.cols > kTopkMost)
            reject("indices", "has k = {} columns, must be from 1 to {}; pass memory for fewer", i.cols, kTopkMost);
        check_shape(indices, rows, i.cols, "a row for each of the logits");
    }
    if (is_given(v)) {
        if (!is_given(i)) reject("values", "is given, but indices is left out; pass both");
        values.check_dtype(DType::F32, "pass memory of it");
        check_shape(values, rows, i.cols, "one for each of indices");
    }
    if (is_given(h)) {
        histogram.check_dtype(DType::I32, "pass memory of it");
        check_shape(histogram, rows, kTopkHistogramBins, "256 bins for each row of the logits");
    }
}

/// Calls check(output) for each that is given, once it has been compared with those before it.
template <typename Check>
void check_places(const TopkOutputs& out, const Matrix& logits, const Check& check) {
    const ConstMatrix outputs[] = {out.indices, out.values, out.histogram, logits};
    const Argument named[] = {
        {"indices", outputs[0]}, {"values", outputs[1]}, {"histogram", outputs[2]}, {"logits", outputs[3]}};
    for (const Argument& x : named) {
        if (!is_given(x.x)) continue;
        x.check_pointer(x.x.device.type == DeviceType::Cuda ? kNumber : 1);
        x.check_rows(1);
        for (const Argument* before = named; before != &x; ++before) {
            if (!is_given(before->x)) continue;
            x.check_device(before->x.device, before->name);
            x.check_apart_from(*before);
        }
        check(x);
    }
}

/// Numbers of columns, one for each row.
void check_bounds(const Argument& x, int64_t rows, const Argument& logits) {
    if (!is_given(x.x)) return;
    x.check_dtype(DType::I32, "convert it");
    check_shape(x, 1, rows, "one for each row");
    x.check_device(logits.x.device, logits.name);
    x.check_pointer(logits.x.device.type == DeviceType::Cuda ? kNumber : 1);
    x.check_rows(1);
}

/// Logits that are asked for. `cols`: -1: any.
void check_logits(const Matrix& logits, int64_t rows, int64_t cols) {
    if (!is_given(logits)) return;
    const ConstMatrix x = logits;
    const Argument d{"logits", x};
    d.check_dtype(DType::F32, "pass memory of it");
    d.check_extents();
    if (logits.rows != rows)
        reject("logits", "has {} rows, but q has {} queries; pass memory with a row for each", logits.rows, rows);
    if (cols >= 0 && logits.cols != cols)
        reject("logits", "has {} columns, but k has {} rows; pass memory with a column for each key", logits.cols,
               cols);
}

void check_form(LogitsForm form) {
    if (form == LogitsForm::Compressed)
        reject("form", "is compressed, but indices are of keys; pass 0 (filled) or 1 (untouched)");
}

template <typename SomeCall>
void check_call(const SomeCall& call, int64_t logits_cols) {
    const MqaOptions options = for_logits(call.options);
    const auto logits = logits_call(call, options);
    check_form(call.options.form);
    check_mqa_operands(logits);
    check_outputs(call.out, call.rows());
    check_logits(call.logits, call.rows(), logits_cols);
    check_places(call.out, call.logits, [&](const Argument& output) { check_mqa_places(logits, output); });
}

}  // namespace

void check_topk(const TopkCall& call) {
    const Argument logits{"logits", call.logits}, starts{"starts", call.starts}, ends{"ends", call.ends};
    logits.check_dtype(DType::F32, "convert it");
    logits.check_extents();
    logits.check_pointer(call.logits.device.type == DeviceType::Cuda ? kNumber : 1);
    logits.check_rows(1);
    check_bounds(starts, call.rows(), logits);
    check_bounds(ends, call.rows(), logits);
    plan::check_num_sms(call.options.num_sms);
    check_outputs(call.out, call.rows());
    check_places(call.out, {}, [&](const Argument& output) {
        output.check_device(call.logits.device, "logits");
        for (const Argument& x : {logits, starts, ends})
            if (is_given(x.x)) x.check_apart_from(output);
    });
}

void check_topk(const MqaTopkCall& call) { check_call(call, call.k.rows); }

void check_topk(const PagedMqaTopkCall& call) {
    if (call.keys < 0 || call.keys > INT32_MAX)
        reject("keys", "is {}, must be from 0 to {}; pass how many a request has at most", call.keys, INT32_MAX);
    if (call.keys > 0 && is_given(call.logits))
        reject("keys", "is {}, but logits are asked for, whose columns they are; leave it out", call.keys);
    check_call(call, -1);
}

void check_topk(const TopkShape& shape) {
    if (shape.k < 0 || shape.k > kTopkMost)
        reject("k", "is {}, must be from 1 to {}, or 0 for histograms alone; pass the columns of indices", shape.k,
               kTopkMost);
    if (shape.k == 0 && !shape.histogram)
        reject("k", "is 0, and histograms are not asked for, so nothing is written; pass one of both");
    check_form(shape.form);
    plan::check_num_sms(shape.num_sms);
    if (!shape.of_numbers()) return check_mqa(logits_shape(shape));
    for (const auto& [name, x] : {std::pair("queries", shape.queries), {"keys", shape.keys}})
        if (x < 1 || x > INT32_MAX) reject(name, "is {}, must be from 1 to {}; pass that of the call", x, INT32_MAX);
    if (shape.logits) reject("logits", "are asked for, but without heads they are what is selected from; leave it out");
}

}  // namespace finegemm
