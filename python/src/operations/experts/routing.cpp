// finegemm.route, permute_quantize and combine. Layer: front end.
#include "operations/experts/routing.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <finegemm/error.h>
#include <finegemm/routing.h>
#include <fmt/format.h>

#include "api/option_lists.h"
#include "plan/elements.h"

namespace finegemm::python {

namespace {

GroupForm group_form_named(std::string_view name) {
    if (name == "offsets") return GroupForm::Offsets;
    if (name == "m_indices") return GroupForm::Indices;
    if (name == "prefix_sums") return GroupForm::PrefixSums;
    if (name == "masked_m") return GroupForm::Masked;
    throw Error(
        Errc::InvalidArgument,
        fmt::format("form: '{}' is none of 'offsets', 'm_indices', 'prefix_sums' and 'masked_m'; pass one of them",
                    name));
}

/// What there must be for rows of all tokens, whatever they choose; of masked groups if none chooses an expert twice.
int64_t rows_for(const RouteArgs& args) {
    const int64_t tokens = args.ids.rows, choices = tokens * args.ids.cols;
    if (args.form == GroupForm::Masked) return std::max<int64_t>(tokens, 1);
    const bool aligned = args.form != GroupForm::Offsets;
    return std::max<int64_t>(choices + (aligned ? std::max<int64_t>(args.experts, 0) * (args.alignment - 1) : 0), 1);
}

void check_makes(const char* name, int64_t x) {
    if (x < 1 || x > INT32_MAX)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: is {}, must be from 1 to {}; pass that of the layer", name, x, INT32_MAX));
}

template <typename Make>
Object given_or(Tensors& tensors, const char* name, PyObject* given, const Make& make) {
    return given == Py_None ? make() : tensors.output(name, given);
}

/// New rows of experts: [rows, cols], or with `groups` [groups, rows, cols].
struct RowsOfExperts {
    std::optional<int64_t> rows, groups;

    static RowsOfExperts from(Arguments& given, bool made) {
        RowsOfExperts r;
        given.take("rows", r.rows);
        given.take("groups", r.groups);
        if (!made && (r.rows || r.groups))
            throw Error(Errc::InvalidArgument, fmt::format("{}: is given, but so is q, which tells; leave it out",
                                                           r.rows ? "rows" : "groups"));
        if (made && !r.rows)
            throw Error(Errc::InvalidArgument,
                        "rows: is not given, nor q; it says how many rows a new q has: pass one of both");
        if (r.rows) check_makes("rows", *r.rows);
        if (r.groups) check_makes("groups", *r.groups);
        return r;
    }
};

}  // namespace

Object route_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject* ids = given.required("ids");
    RouteArgs args{.ids = tensors.matrix("ids", ids), .inverse = {}, .numbers = {}};
    std::optional<int64_t> rows;
    std::string form = "prefix_sums";
    given.take("experts", args.experts);
    given.take("first", args.first);
    given.take("alignment", args.alignment);
    given.take("form", form);
    given.take("rows", rows);
    args.form = group_form_named(form);
    args.rows = rows.value_or(rows_for(args));
    check_makes("experts", args.experts);
    check_makes("rows", args.rows);
    const bool masked = args.form == GroupForm::Masked;
    const int64_t numbers_size = args.form == GroupForm::Indices   ? args.rows
                                 : args.form == GroupForm::Offsets ? args.experts + 1
                                                                   : args.experts;
    const Object inverse = given_or(tensors, "inverse", given.optional("inverse"), [&] {
        return tensors.empty_like(ids, {args.ids.rows, args.ids.cols}, "int32", "inverse");
    });
    const Object numbers = given_or(tensors, "numbers", given.optional("numbers"),
                                    [&] { return tensors.empty_like(ids, {numbers_size}, "int32", "numbers"); });
    const Object permutation = given_or(tensors, "permutation", given.optional("permutation"), [&] {
        return masked ? tensors.empty_like(ids, {args.experts, args.rows}, "int32", "permutation")
                      : tensors.empty_like(ids, {args.rows}, "int32", "permutation");
    });
    args.inverse = tensors.matrix("inverse", inverse.get(), Access::Write);
    args.numbers = tensors.row("numbers", numbers.get(), Access::Write);
    args.permutation = masked ? tensors.matrix("permutation", permutation.get(), Access::Write)
                              : tensors.row("permutation", permutation.get(), Access::Write);
    RouteOptions options{.stream = tensors.stream(given.optional("stream"), inverse.get(), args.inverse.device)};
    route_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    given.check_all_taken();
    Object all(PyTuple_Pack(3, inverse.get(), numbers.get(), permutation.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    route(context, args, options);
    return all;
}

Object permute_quantize_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *x = given.required("x"), *to = given.optional("q"), *x_scales = given.optional("x_scales");
    PermuteQuantizeArgs args{
        .x = tensors.matrix("x", x), .inverse = tensors.matrix("inverse", given.required("inverse")), .q = {}};
    if (x_scales != Py_None) args.x_scales = tensors.matrix("x_scales", x_scales);
    const RowsOfExperts of = RowsOfExperts::from(given, to == Py_None);
    const int64_t cols = args.x.cols, blocks = (cols + 127) / 128;
    Object q = given_or(tensors, "q", to, [&] {
        return of.groups ? tensors.empty_like(x, {*of.groups, *of.rows, cols}, "float8_e4m3fn", "q")
                         : tensors.empty_like(x, {*of.rows, cols}, "float8_e4m3fn", "q");
    });
    const auto [stack, several] = tensors.matrices("q", q.get(), Access::Write);
    args.q = stack;
    Object scales;
    PyObject* given_scales = given.optional("scales");
    if (given_scales != Py_None || stack.matrix.dtype == DType::E4M3) {
        scales = given_or(tensors, "scales", given_scales, [&] {
            std::vector<int64_t> shape = {stack.matrix.rows, blocks};
            if (several) shape.insert(shape.begin(), stack.count);
            return tensors.empty_mn_major(x, shape, "float32", "scales");
        });
        args.scales = tensors.matrices("scales", scales.get(), Access::Write).stack;
    } else {
        Py_INCREF(Py_None);
        scales = Object(Py_None);
    }
    PermuteOptions options{.stream = tensors.stream(given.optional("stream"), q.get(), stack.matrix.device)};
    permute_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    given.check_all_taken();
    Object both(PyTuple_Pack(2, q.get(), scales.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    permute_quantize(context, args, options);
    return both;
}

Object combine_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *y = given.required("y"), *weights = given.optional("weights");
    CombineArgs args{.y = tensors.matrices("y", y).stack,
                     .inverse = tensors.matrix("inverse", given.required("inverse")),
                     .out = {}};
    if (weights != Py_None) args.weights = tensors.matrix("weights", weights);
    Object out = given_or(tensors, "out", given.optional("out"), [&] {
        return tensors.empty_like(y, {args.inverse.rows, args.y.matrix.cols}, "bfloat16", "out");
    });
    args.out = tensors.matrix("out", out.get(), Access::Write);
    CombineOptions options{.stream = tensors.stream(given.optional("stream"), out.get(), args.out.device)};
    combine_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    given.check_all_taken();
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    combine(context, args, options);
    return out;
}

}  // namespace finegemm::python
