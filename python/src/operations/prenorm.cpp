// finegemm.prenorm_gemm. Layer: front end.
#include "operations/prenorm.h"

#include <optional>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/prenorm.h>

#include "api/option_lists.h"

namespace finegemm::python {

namespace {

/// None: d and sqrsum are sums, without a dimension of slices.
std::optional<int64_t> splits_of(Arguments& given) {
    std::optional<int64_t> splits;
    given.take("num_splits", splits);
    if (splits && *splits < 1)
        throw Error(
            Errc::InvalidArgument,
            fmt::format("num_splits: is {}, must be at least 1; leave it out for sums without slices", *splits));
    return splits;
}

}  // namespace

Object prenorm_gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *a = given.required("a"), *d = given.optional("d"), *sqrsum = given.optional("sqrsum");
    PrenormArgs args{.a = tensors.matrix("a", a), .b = tensors.matrix("b", given.required("b")), .d = {}, .sqrsum = {}};
    const int64_t m = args.a.rows, n = args.b.rows;
    std::optional<int64_t> splits = splits_of(given);
    Object out = d != Py_None ? tensors.output("d", d)
                 : splits     ? tensors.empty_like(a, {*splits, m, n}, "float32", "d")
                              : tensors.empty_like(a, {m, n}, "float32", "d");
    const auto [slices, several] = tensors.matrices("d", out.get(), Access::Write);
    if (splits && (!several || slices.count != *splits))
        throw Error(Errc::InvalidArgument,
                    fmt::format("num_splits: is {}, but d has {}; leave it out, or pass d [{}, M, N]", *splits,
                                several ? fmt::format("{} slices", slices.count) : "two dimensions", *splits));
    Object squares = sqrsum != Py_None ? tensors.output("sqrsum", sqrsum)
                     : several         ? tensors.empty_like(a, {slices.count, m}, "float32", "sqrsum")
                                       : tensors.empty_like(a, {m}, "float32", "sqrsum");
    args.d = slices;
    args.sqrsum = several ? tensors.matrix("sqrsum", squares.get(), Access::Write)
                          : tensors.row("sqrsum", squares.get(), Access::Write);
    PrenormOptions options{.stream = tensors.stream(given.optional("stream"), out.get(), slices.matrix.device)};
    prenorm_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    given.check_all_taken();
    Object both(PyTuple_Pack(2, out.get(), squares.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    prenorm_gemm(context, args, options);
    return both;
}

Object explain_prenorm_text(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    PrenormShape shape;
    std::optional<int64_t> splits = splits_of(given);
    std::string device;
    prenorm_fields(
        [&](std::string_view name, auto& member) {
            if (name != "slices") given.take(name.data(), member);
        },
        shape);
    given.take("device", device);
    given.check_all_taken();
    shape.slices = splits.value_or(1);
    const std::string text = explain(shape, device);
    return Object(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

}  // namespace finegemm::python
