// finegemm.topk and its neighbours. Layer: front end.
#include "operations/topk.h"

#include <optional>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/topk.h>

#include "api/option_lists.h"

namespace finegemm::python {

namespace {

/// A tensor that is written to, and its memory; nothing for None.
struct Output {
    Object tensor;
    Matrix matrix;
};
Output output_of(Tensors& tensors, Arguments& given, const char* name) {
    PyObject* x = given.optional(name);
    if (x == Py_None) return {};
    Object out = tensors.output(name, x);
    const Matrix matrix = tensors.matrix(name, out.get(), Access::Write);
    return {std::move(out), matrix};
}

/// Indices in the tensor `indices`, or in a new one of `x`'s library with as many columns as `count` says.
Output indices_of(Tensors& tensors, Arguments& given, PyObject* x, int64_t rows, const char* count) {
    std::optional<int64_t> k;
    given.take(count, k);
    const bool is_given = given.optional("indices") != Py_None;
    if (k.has_value() == is_given)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: must be given where indices is not, and only there; pass one of both", count));
    if (k && *k < 0)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: is {}, must not be negative; 0 is for a histogram alone", count, *k));
    if (is_given) return output_of(tensors, given, "indices");
    if (*k == 0) return {};
    Object out = tensors.empty_like(x, {rows, *k}, "int32", "indices");
    const Matrix matrix = tensors.matrix("indices", out.get(), Access::Write);
    return {std::move(out), matrix};
}

/// What a call writes besides logits.
struct Selected {
    Output indices, values, histogram;

    Selected(Tensors& tensors, Arguments& given, PyObject* x, int64_t rows, const char* count)
        : indices(indices_of(tensors, given, x, rows, count)),
          values(output_of(tensors, given, "values")),
          histogram(output_of(tensors, given, "histogram")) {}
    TopkOutputs outputs() const { return {indices.matrix, values.matrix, histogram.matrix}; }
    Object& result() { return indices.tensor.get() ? indices.tensor : histogram.tensor; }
};

template <typename Args>
Object run(void (*call)(Context&, const Args&, const TopkOptions&), Context& context, const Args& args,
           Tensors& tensors, Arguments& given, Selected& selected) {
    if (!selected.result().get())
        throw Error(Errc::InvalidArgument, "indices: is left out, and so is histogram; pass one of them");
    const Matrix& written = selected.indices.tensor.get() ? selected.indices.matrix : selected.histogram.matrix;
    TopkOptions options;
    topk_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    options.stream = tensors.stream(given.optional("stream"), selected.result().get(), written.device);
    given.check_all_taken();
    {
        WithoutGil others_run;
        options.poll = [&](double) { others_run.run_handlers(); };
        call(context, args, options);
    }
    return std::move(selected.result());
}

}  // namespace

Object topk_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject* logits = given.required("logits");
    const auto bound = [&](const char* name) {
        PyObject* x = given.optional(name);
        return x == Py_None ? ConstMatrix{} : ConstMatrix(tensors.row(name, x));
    };
    TopkArgs args{
        .logits = tensors.matrix("logits", logits), .starts = bound("starts"), .ends = bound("ends"), .out = {}};
    Selected selected(tensors, given, logits, args.logits.rows, "k");
    args.out = selected.outputs();
    return run(&topk, context, args, tensors, given, selected);
}

Object mqa_topk_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    const auto row = [&](const char* name) { return tensors.row(name, given.required(name)); };
    PyObject* q = given.required("q");
    MqaTopkArgs args{.q = tensors.heads("q", q, 3),
                     .k = tensors.matrix("k", given.required("k")),
                     .sfk = row("sfk"),
                     .w = tensors.matrix("w", given.required("w")),
                     .starts = row("starts"),
                     .ends = row("ends"),
                     .out = {},
                     .logits = {}};
    const Output logits = output_of(tensors, given, "logits");
    Selected selected(tensors, given, q, args.q.count, "topk");
    args.out = selected.outputs(), args.logits = logits.matrix;
    return run(&mqa_topk, context, args, tensors, given, selected);
}

Object paged_mqa_topk_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject* q = given.required("q");
    const Stack heads = tensors.heads("q", q, 4);
    PagedMqaTopkArgs args{.q = heads,
                          .cache = tensors.pages("cache", given.required("cache"), heads.matrix.cols),
                          .w = tensors.matrix("w", given.required("w")),
                          .lengths = tensors.lengths("lengths", given.required("lengths")),
                          .block_table = tensors.matrix("block_table", given.required("block_table")),
                          .out = {},
                          .logits = {}};
    given.take("keys", args.keys);
    const Output logits = output_of(tensors, given, "logits");
    Selected selected(tensors, given, q, heads.count, "topk");
    args.out = selected.outputs(), args.logits = logits.matrix;
    return run(&paged_mqa_topk, context, args, tensors, given, selected);
}

Object explain_topk_text(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    TopkShape shape;
    std::optional<int64_t> requests, heads, dim;
    std::string device;
    given.take("requests", requests);
    given.take("heads", heads);
    given.take("dim", dim);
    given.take("device", device);
    topk_fields(
        [&](std::string_view name, auto& member) {
            if (name != "paged" && name != "requests" && name != "heads" && name != "dim")
                given.take(name.data(), member);
        },
        shape);
    given.check_all_taken();
    shape.paged = requests.has_value();
    shape.requests = requests.value_or(1);
    shape.heads = heads.value_or(0), shape.dim = dim.value_or(0);
    const std::string text = explain(shape, device);
    return Object(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

}  // namespace finegemm::python
