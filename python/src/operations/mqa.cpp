// finegemm.mqa_logits and its neighbours. Layer: front end.
#include "operations/mqa.h"

#include <optional>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/mqa.h>

#include "api/option_lists.h"
#include "plan/elements.h"

namespace finegemm::python {

namespace {

/// Logits in the tensor `d`, or in a new one of `x`'s library.
struct Logits {
    Object tensor;
    Matrix matrix;
};
Logits logits_of(Tensors& tensors, Arguments& given, PyObject* x, int64_t rows, int64_t cols) {
    PyObject* d = given.optional("d");
    std::optional<DType> wanted;
    given.take("out_dtype", wanted);
    const DType made = wanted.value_or(DType::F32);
    Object out = d == Py_None ? tensors.empty_like(x, {rows, cols}, find_type(made)->array_name.data(), "d")
                              : tensors.output("d", d);
    const Matrix matrix = tensors.matrix("d", out.get(), Access::Write);
    if (wanted && matrix.dtype != made)
        throw Error(Errc::InvalidArgument, fmt::format("out_dtype: is '{}', must be the dtype of d, which has another; "
                                                       "leave it out",
                                                       find_type(made)->array_name));
    return {std::move(out), matrix};
}

/// Columns of new logits.
std::optional<int64_t> width_of(Arguments& given) {
    std::optional<int64_t> width;
    given.take("width", width);
    if (width && *width < 0)
        throw Error(Errc::InvalidArgument,
                    fmt::format("width: is {}, must not be negative; pass the columns of d", *width));
    if (width && given.optional("d") != Py_None)
        throw Error(Errc::InvalidArgument, "width: is given with d, whose columns they are; leave it out");
    return width;
}

template <typename Args>
void run(void (*call)(Context&, const Args&, const MqaOptions&), Context& context, const Args& args, MqaOptions options,
         Tensors& tensors, Arguments& given, const Logits& d) {
    mqa_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    options.stream = tensors.stream(given.optional("stream"), d.tensor.get(), d.matrix.device);
    given.check_all_taken();
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    call(context, args, options);
}

}  // namespace

Object mqa_logits_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    const auto row = [&](const char* name) { return tensors.row(name, given.required(name)); };
    PyObject* q = given.required("q");
    MqaLogitsArgs args{.q = tensors.heads("q", q, 3),
                       .k = tensors.matrix("k", given.required("k")),
                       .sfk = row("sfk"),
                       .w = tensors.matrix("w", given.required("w")),
                       .starts = row("starts"),
                       .ends = row("ends"),
                       .d = {}};
    MqaOptions options;
    given.take("form", options.form);
    const std::optional<int64_t> width = width_of(given);
    const bool compressed = options.form == LogitsForm::Compressed;
    if (compressed && !width && given.optional("d") == Py_None)
        throw Error(Errc::InvalidArgument,
                    "width: is not given, nor d; of compressed rows it says how many keys a "
                    "query sees at most: pass one of both");
    if (width && !compressed)
        throw Error(Errc::InvalidArgument,
                    "width: is given, but only compressed rows have another than the number of "
                    "keys; leave it out");
    Logits d = logits_of(tensors, given, q, args.q.count, width.value_or(args.k.rows));
    args.d = d.matrix;
    run(&mqa_logits, context, args, options, tensors, given, d);
    return std::move(d.tensor);
}

Object paged_mqa_logits_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *q = given.required("q"), *schedule = given.optional("schedule");
    const Stack heads = tensors.heads("q", q, 4);
    PagedMqaLogitsArgs args{.q = heads,
                            .cache = tensors.pages("cache", given.required("cache"), heads.matrix.cols),
                            .w = tensors.matrix("w", given.required("w")),
                            .lengths = tensors.lengths("lengths", given.required("lengths")),
                            .block_table = tensors.matrix("block_table", given.required("block_table")),
                            .schedule = {},
                            .d = {}};
    if (schedule != Py_None) args.schedule = tensors.matrix("schedule", schedule);
    const int64_t page_size = args.cache.cols / (heads.matrix.cols + 4);
    const int64_t width = width_of(given).value_or(args.block_table.cols * page_size);
    Logits d = logits_of(tensors, given, q, heads.count, width);
    args.d = d.matrix;
    run(&paged_mqa_logits, context, args, {}, tensors, given, d);
    return std::move(d.tensor);
}

Object paged_mqa_schedule_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *lengths = given.required("lengths"), *schedule = given.optional("schedule");
    PagedMqaScheduleArgs args{.lengths = tensors.lengths("lengths", lengths), .schedule = {}};
    std::optional<int64_t> slots, queries_each;
    given.take("slots", slots);
    given.take("queries_each", queries_each);
    args.queries_each = queries_each.value_or(args.lengths.cols);
    if (slots.has_value() == (schedule != Py_None))
        throw Error(Errc::InvalidArgument,
                    "slots: must be given where schedule is not, and only there; pass one of both");
    if (slots && (*slots < 1 || *slots > INT32_MAX - 1))
        throw Error(Errc::InvalidArgument,
                    fmt::format("slots: is {}, must be from 1 to {}; pass the SMs of the GPU", *slots, INT32_MAX - 1));
    Object out = schedule == Py_None ? tensors.empty_like(lengths, {*slots + 1, 2}, "int32", "schedule")
                                     : tensors.output("schedule", schedule);
    args.schedule = tensors.matrix("schedule", out.get(), Access::Write);
    PagedMqaScheduleOptions options{.stream =
                                        tensors.stream(given.optional("stream"), out.get(), args.schedule.device)};
    given.take("pdl", options.pdl);
    given.check_all_taken();
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    paged_mqa_schedule(context, args, options);
    return out;
}

Object explain_mqa_text(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    MqaShape shape;
    std::optional<int64_t> requests;
    std::optional<DType> dtype;
    given.take("requests", requests);
    given.take("out_dtype", dtype);
    mqa_fields(
        [&](std::string_view name, auto& member) {
            if (name != "paged" && name != "requests") given.take(name.data(), member);
        },
        shape);
    given.check_all_taken();
    shape.paged = requests.has_value();
    shape.requests = requests.value_or(1);
    shape.dtype = dtype.value_or(DType::F32);
    const std::string text = explain(shape);
    return Object(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

}  // namespace finegemm::python
