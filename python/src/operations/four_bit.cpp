// finegemm.four_bit_gemm, and packing. Layer: front end.
#include "operations/four_bit.h"

#include <optional>
#include <string>

#include <finegemm/error.h>
#include <finegemm/four_bit.h>
#include <fmt/format.h>

#include "api/option_lists.h"
#include "operations/row_groups.h"

namespace finegemm::python {

FourBitFormat format_named(std::string_view name) {
    if (name == "mxfp4") return FourBitFormat::Mxfp4;
    if (name == "int4") return FourBitFormat::Int4;
    throw Error(Errc::InvalidArgument,
                fmt::format("format: is '{}', must be 'mxfp4' or 'int4'; pass that of the weights", name));
}

namespace {

Object attribute(PyObject* x, const char* name) { return Object(PyObject_GetAttrString(x, name)); }

}  // namespace

bool are_four_bit(PyObject* x) { return PyObject_HasAttrString(x, "fp8_scales") == 1; }

GivenWeights::GivenWeights(Tensors& tensors, PyObject* x, const char* name) : data(attribute(x, "data")) {
    const Object format = attribute(x, "format"), codes = attribute(x, "fp8"), scales = attribute(x, "fp8_scales");
    const Matrix bytes = tensors.matrix(name, data.get());
    const Object rows = attribute(x, "rows"), cols = attribute(x, "cols");
    packed = {.data = bytes.data,
              .format = format_named(text("format", format.get())),
              .groups = bytes.rows,
              .rows = integer("rows", rows.get()),
              .cols = integer("cols", cols.get()),
              .device = bytes.device};
    const int64_t wanted = four_bit_bytes(packed.format, packed.rows, packed.cols);
    if (bytes.cols != wanted || (bytes.rows > 1 && bytes.row_stride != wanted) || bytes.col_stride != 1)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has shape [{}, {}], must be [G, {}] and contiguous; pack_{} makes it", name,
                                bytes.rows, bytes.cols, wanted, text("format", format.get())));
    if (codes.get() != Py_None) fp8 = tensors.stack("fp8", codes.get());
    if (scales.get() != Py_None) fp8_scales = tensors.stack("fp8_scales", scales.get());
}

Object four_bit_gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *a = given.required("a"), *to = given.optional("d");
    const GivenWeights b(tensors, given.required("b"));
    FourBitArgs args;
    const char* const groups = take_groups(tensors, given, args.groups);
    given.take("expected_m", args.groups.expected_m);
    const auto [rows, several] = tensors.matrices("a", a);
    const int64_t m = rows.matrix.rows, n = b.packed.rows;
    const Object d = to != Py_None ? tensors.output("d", to)
                     : several     ? tensors.empty_like(a, {rows.count, m, n}, "bfloat16", "d")
                                   : tensors.empty_like(a, {m, n}, "bfloat16", "d");
    args.a = rows;
    args.sfa = tensors.matrices("sfa", given.required("sfa")).stack;
    args.b = b.packed;
    args.fp8 = b.fp8, args.fp8_scales = b.fp8_scales;
    args.d = tensors.matrices("d", d.get(), Access::Write).stack;
    FourBitOptions options{.stream = tensors.stream(given.optional("stream"), d.get(), args.d.matrix.device)};
    four_bit_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    given.check_all_taken();
    Object result(Py_NewRef(d.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    if (!groups) four_bit_gemm(context, args, options);
    else with_names_of_python(groups, [&] { four_bit_gemm(context, args, options); });
    return result;
}

Object packed_four_bit(const Imports& imports, PyObject* keywords) {
    Arguments given(keywords);
    Tensors tensors(imports);
    FourBitSource source{.format = format_named(text("format", given.required("format"))), .codes = {}, .scales = {}};
    PyObject* const x = given.required("codes");
    const Stack codes = tensors.matrices("codes", x).stack;
    const char* const name = source.format == FourBitFormat::Mxfp4 ? "exponents" : "scales";
    const Stack scales = tensors.matrices(name, given.required(name)).stack;
    given.take("high_first", source.high_first);
    given.take("offset", source.offset);
    given.check_all_taken();
    if (scales.count != codes.count)
        throw Error(Errc::InvalidArgument, fmt::format("{}: has {} matrices, but codes has {}; pass as many", name,
                                                       scales.count, codes.count));
    const int64_t bytes = four_bit_bytes(source.format, codes.matrix.rows, codes.matrix.cols * 2);
    Object packed = tensors.empty_like(x, {codes.count, bytes}, "uint8", "packed");
    const Matrix to = tensors.matrix("packed", packed.get(), Access::Write);
    const auto at = [](const Stack& stack, int64_t i) {
        ConstMatrix m = stack.matrix;
        m.data = static_cast<const uint8_t*>(m.data) + i * stack.stride * size_of(m.dtype);
        return m;
    };
    if (to.device.type != DeviceType::Cpu)
        throw Error(Errc::InvalidArgument, "codes: is not on the CPU, must be there; copy it");
    WithoutGil others_run;
    for (int64_t i = 0; i < codes.count; ++i) {
        source.codes = at(codes, i);
        source.scales = at(scales, i);
        pack_four_bit(source, static_cast<uint8_t*>(to.data) + i * bytes);
    }
    return packed;
}

Object unpacked_four_bit(const Imports& imports, PyObject* keywords) {
    Arguments given(keywords);
    Tensors tensors(imports);
    const GivenWeights b(tensors, given.required("weights"));
    std::optional<int64_t> group;
    given.take("group", group);
    given.check_all_taken();
    const FourBitWeights& w = b.packed;
    const auto blocks = [](int64_t extent) { return (extent + 127) / 128; };
    const int64_t scale_rows = w.format == FourBitFormat::Mxfp4 ? blocks(w.rows) : w.rows;
    const auto empty = [&](int64_t rows, int64_t cols, const char* dtype, const char* name) {
        PyObject* const like = b.data.get();
        return group ? tensors.empty_like(like, {rows, cols}, dtype, name)
                     : tensors.empty_like(like, {w.groups, rows, cols}, dtype, name);
    };
    Object q = empty(w.rows, w.cols, "float8_e4m3fn", "q");
    Object scales = empty(scale_rows, blocks(w.cols), "float32", "scales");
    const Stack to = tensors.matrices("q", q.get(), Access::Write).stack,
                of_scales = tensors.matrices("scales", scales.get(), Access::Write).stack;
    Object both(PyTuple_Pack(2, q.get(), scales.get()));
    const WithoutGil others_run;
    if (group) unpack_four_bit(w, *group, to.matrix, of_scales.matrix);
    else
        for (int64_t i = 0; i < w.groups; ++i) {
            const auto at = [i](const Stack& stack) {
                Matrix m = stack.matrix;
                m.data = static_cast<uint8_t*>(m.data) + i * stack.stride * size_of(m.dtype);
                return m;
            };
            unpack_four_bit(w, i, at(to), at(of_scales));
        }
    return both;
}

Object explain_four_bit_text(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    FourBitShape shape{.format = format_named(text("format", given.required("format")))};
    std::string device;
    given.take("groups", shape.groups);
    four_bit_fields([&](const char* name, auto& member) { given.take(name, member); }, shape);
    given.take("device", device);
    given.check_all_taken();
    const std::string told = explain(shape, device);
    return Object(PyUnicode_FromStringAndSize(told.data(), static_cast<Py_ssize_t>(told.size())));
}

}  // namespace finegemm::python
