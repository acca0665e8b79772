// finegemm.quantize_rows, quantize_blocks, quantize_weights, quantize_columns and reencode. Layer: front end.
#include "operations/quantize.h"

#include <array>
#include <vector>

#include <finegemm/error.h>
#include <finegemm/quantize.h>
#include <fmt/format.h>

#include "plan/elements.h"

namespace finegemm::python {

namespace {

constexpr int64_t kScaleBlock = 128;

constexpr int64_t blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

/// An output that is given, or the new one that `make` makes.
template <typename Make>
Object given_or(Tensors& tensors, const char* name, PyObject* given, const Make& make) {
    return given == Py_None ? make() : tensors.output(name, given);
}
/// `format`: of new codes.
Object codes_or_new(Tensors& tensors, const char* name, PyObject* given, PyObject* x, int64_t rows, int64_t cols,
                    const char* format) {
    return given_or(tensors, name, given, [&] { return tensors.empty_like(x, {rows, cols}, format, name); });
}

/// The type of new codes.
const char* codes_format(Arguments& given, PyObject* q) {
    PyObject* const dtype = given.optional("dtype");
    const std::string_view name = dtype == Py_None ? "float8_e4m3fn" : text("dtype", dtype);
    const ElementType* const type = find_type(type_named("dtype", name));
    if (!is_scaled(*type))
        throw Error(Errc::InvalidArgument, fmt::format("dtype: is '{}', must be {}; pass one of them", name,
                                                       names_of(is_scaled, &ElementType::array_name)));
    if (dtype != Py_None && q != Py_None)
        throw Error(Errc::InvalidArgument, "dtype: is given, but so is q, which has one; leave it out");
    return type->array_name.data();
}
Object scales_or_new(Tensors& tensors, const char* name, PyObject* given, PyObject* x, int64_t rows, int64_t cols) {
    return given_or(tensors, name, given, [&] { return tensors.empty_like(x, {rows, cols}, "float32", name); });
}

/// A flag about new scales. `shape`: what those have that are given, and say it so.
bool flag_of_scales(Arguments& given, const char* name, const char* shape) {
    bool set = false;
    given.take(name, set);
    if (set && given.optional("scales") != Py_None)
        throw Error(
            Errc::InvalidArgument,
            fmt::format("{}: is True, but scales are given, whose shape says it ({}); leave it out", name, shape));
    return set;
}

/// Columns of scales of rows, where they are new.
int64_t columns_of_scales(Arguments& given, const Matrix& x) {
    return flag_of_scales(given, "whole_rows", "[M, 1]") ? 1 : blocks(x.cols);
}

/// `rows`: of scales of rows, not of blocks.
template <auto Quantize>
Object quantize_into(const Imports& imports, Context& context, Arguments& given, bool rows) {
    Tensors tensors(imports);
    PyObject* x = given.required("x");
    const Matrix in = tensors.matrix("x", x);
    PyObject* const given_q = given.optional("q");
    const Object q = codes_or_new(tensors, "q", given_q, x, in.rows, in.cols, codes_format(given, given_q));
    const int64_t down = rows ? in.rows : blocks(in.rows);
    const int64_t across = rows ? columns_of_scales(given, in) : blocks(in.cols);
    const Object scales = scales_or_new(tensors, "scales", given.optional("scales"), x, down, across);
    const Matrix q_matrix = tensors.matrix("q", q.get(), Access::Write);
    const Matrix scale_matrix = tensors.matrix("scales", scales.get(), Access::Write);
    QuantizeOptions options{.stream = tensors.stream(given.optional("stream"), q.get(), q_matrix.device)};
    given.take("power_of_two_scales", options.power_of_two_scales);
    given.check_all_taken();
    Object both(PyTuple_Pack(2, q.get(), scales.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    Quantize(context, in, q_matrix, scale_matrix, options);
    return both;
}

Matrix row_of(const Numbers& numbers) {
    return {const_cast<int32_t*>(numbers.data), DType::I32, 1, numbers.size, numbers.size, 1, numbers.device};
}

/// Columns of a new q for `rows`. `offsets`: of groups, if there are any.
int64_t columns_for(int64_t rows, const Numbers& offsets) {
    if (!offsets.data) return (rows + 15) / 16 * 16;
    return (rows + (kScaleBlock - 1) * (offsets.size - 1)) / kScaleBlock * kScaleBlock;
}

}  // namespace

Object quantize_rows_into(const Imports& imports, Context& context, Arguments& given) {
    return quantize_into<&quantize_rows>(imports, context, given, true);
}
Object quantize_blocks_into(const Imports& imports, Context& context, Arguments& given) {
    return quantize_into<&quantize_blocks>(imports, context, given, false);
}

Object quantize_weights_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject* x = given.required("x");
    const auto [in, several] = tensors.matrices("x", x);
    const int64_t n = in.matrix.rows, k = in.matrix.cols;
    const auto output = [&](const char* name, int64_t rows, int64_t cols, const char* format) {
        return given_or(tensors, name, given.optional(name), [&] {
            return several ? tensors.empty_like(x, {in.count, rows, cols}, format, name)
                           : tensors.empty_like(x, {rows, cols}, format, name);
        });
    };
    const Object q = output("q", n, k, "float8_e4m3fn"), scales = output("scales", blocks(n), blocks(k), "float32");
    const auto written = [&](const char* name, const Object& to) {
        return tensors.matrices(name, to.get(), Access::Write).stack;
    };
    const Stack of_q = written("q", q);
    const Object transposed = output("transposed", k, n, find_type(of_q.matrix.dtype)->array_name.data());
    const QuantizeWeightsArgs args{
        .x = in, .q = of_q, .scales = written("scales", scales), .transposed = written("transposed", transposed)};
    QuantizeOptions options{.stream = tensors.stream(given.optional("stream"), q.get(), args.q.matrix.device)};
    given.take("power_of_two_scales", options.power_of_two_scales);
    given.check_all_taken();
    Object all(PyTuple_Pack(3, q.get(), scales.get(), transposed.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    quantize_weights(context, args, options);
    return all;
}

Object quantize_columns_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *x = given.required("x"), *offsets = given.optional("offsets"), *begins = given.optional("begins");
    PyObject *row_q = given.optional("row_q"), *row_scales = given.optional("row_scales");
    PyObject* const q = given.optional("q");
    const char* const format = codes_format(given, q);
    bool rows = row_q != Py_None || row_scales != Py_None;
    given.take("rows", rows);
    QuantizeColumnsArgs args{.x = tensors.matrix("x", x), .q = {}, .scales = {}};
    const int64_t m = args.x.rows, k = args.x.cols;
    const Numbers groups = offsets == Py_None ? Numbers{} : tensors.numbers("offsets", offsets);
    std::vector<Object> results;
    results.push_back(codes_or_new(tensors, "q", q, x, k, columns_for(m, groups), format));
    args.q = tensors.matrix("q", results.back().get(), Access::Write);
    const char* const format_of_rows = find_type(args.q.dtype)->array_name.data();
    results.push_back(given_or(tensors, "scales", given.optional("scales"), [&] {
        return tensors.empty_mn_major(x, std::array{k, blocks(args.q.cols)}, "float32", "scales");
    }));
    args.scales = tensors.matrix("scales", results.back().get(), Access::Write);
    if (groups.data || begins != Py_None) {
        results.push_back(given_or(tensors, "begins", begins,
                                   [&] { return tensors.empty_like(x, {groups.size}, "int32", "begins"); }));
        args.offsets = row_of(groups);
        args.begins = row_of(tensors.numbers("begins", results.back().get(), Access::Write));
    }
    if (rows) {
        results.push_back(codes_or_new(tensors, "row_q", row_q, x, m, k, format_of_rows));
        args.row_q = tensors.matrix("row_q", results.back().get(), Access::Write);
        results.push_back(given_or(tensors, "row_scales", row_scales, [&] {
            return tensors.empty_mn_major(x, std::array{m, blocks(k)}, "float32", "row_scales");
        }));
        args.row_scales = tensors.matrix("row_scales", results.back().get(), Access::Write);
    }
    QuantizeOptions options{.stream = tensors.stream(given.optional("stream"), results[0].get(), args.q.device)};
    given.take("power_of_two_scales", options.power_of_two_scales);
    given.check_all_taken();
    Object all(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
    for (size_t i = 0; i < results.size(); ++i)
        PyTuple_SetItem(all.get(), static_cast<Py_ssize_t>(i), results[i].release());
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    quantize_columns(context, args, options);
    return all;
}

Object reencode_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *x = given.required("codes"), *words = given.required("words"), *changed = given.optional("changed");
    const bool of_blocks = flag_of_scales(given, "blocks", "[ceil(M/128), ceil(K/128)]");
    const auto [codes, several] = tensors.matrices("codes", x);
    const int64_t count = codes.count, m = codes.matrix.rows, k = codes.matrix.cols;
    const Object q = given_or(tensors, "q", given.optional("q"), [&] {
        return several ? tensors.empty_like(x, {count, m, k}, "float8_e4m3fn", "q")
                       : tensors.empty_like(x, {m, k}, "float8_e4m3fn", "q");
    });
    const Object scales = given_or(tensors, "scales", given.optional("scales"), [&] {
        const int64_t rows = of_blocks ? blocks(m) : m, cols = blocks(k);
        const std::array<int64_t, 3> shape{count, rows, cols};
        if (!of_blocks)  // as products read them fastest
            return tensors.empty_mn_major(x, std::span(shape).subspan(several ? 0 : 1), "float32", "scales");
        return several ? tensors.empty_like(x, {count, rows, cols}, "float32", "scales")
                       : tensors.empty_like(x, {rows, cols}, "float32", "scales");
    });
    ReencodeArgs args{.codes = codes,
                      .words = tensors.matrices("words", words).stack,
                      .q = tensors.matrices("q", q.get(), Access::Write).stack,
                      .scales = tensors.matrices("scales", scales.get(), Access::Write).stack};
    if (changed != Py_None) args.changed = row_of(tensors.numbers("changed", changed, Access::Write));
    ReencodeOptions options{.stream = tensors.stream(given.optional("stream"), q.get(), args.q.matrix.device)};
    given.take("pdl", options.pdl);
    given.check_all_taken();
    Object both(PyTuple_Pack(2, q.get(), scales.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    reencode(context, args, options);
    return both;
}

}  // namespace finegemm::python
