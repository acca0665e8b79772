// finegemm.moe, explain_moe and moe_workspace_bytes. Layer: front end.
#include "operations/experts/moe.h"

#include <string>

#include <finegemm/error.h>
#include <finegemm/moe.h>
#include <fmt/format.h>

#include "api/option_lists.h"
#include "operations/four_bit.h"

namespace finegemm::python {

namespace {

Matrix matrix_if_given(Tensors& tensors, const char* name, PyObject* x) {
    return x == Py_None ? Matrix{} : tensors.matrix(name, x);
}

/// Memory as a vector of bytes.
void take_workspace(Tensors& tensors, PyObject* given, MoeArgs& args) {
    if (given == Py_None) return;
    const Matrix bytes = tensors.row("workspace", given, Access::Write);
    if (size_of(bytes.dtype) != 1)
        throw Error(Errc::InvalidArgument, fmt::format("workspace: has {} bytes in an element, must be of uint8; pass "
                                                       "as many of these as moe_workspace_bytes says",
                                                       size_of(bytes.dtype)));
    if (bytes.cols > 1 && bytes.col_stride != 1)
        throw Error(Errc::InvalidArgument, "workspace: is not contiguous; pass a contiguous vector of uint8");
    if (bytes.device != args.out.device)
        throw Error(Errc::InvalidArgument, "workspace: is on another device than out; all must be on one device");
    args.workspace = bytes.data, args.workspace_bytes = bytes.cols;
}

MoeShape shape_of(Arguments& given) {
    MoeShape shape;
    moe_fields([&](const char* name, auto& member) { given.take(name, member); }, shape);
    return shape;
}

/// Experts' weights: of FP8 with scales, or of 4 bits, which may have their FP8 beside them.
void take_weights(Tensors& tensors, Arguments& given, const char* name, const char* scales_name, FourBitWeights& packed,
                  ConstStack& fp8, ConstStack& scales) {
    PyObject* const weights = given.required(name);
    if (!are_four_bit(weights)) {
        fp8 = tensors.stack(name, weights);
        scales = tensors.stack(scales_name, given.required(scales_name));
        return;
    }
    if (given.optional(scales_name) != Py_None)
        throw Error(
            Errc::InvalidArgument,
            fmt::format("{}: is given, but {} is of 4 bits, which has its scales; leave it out", scales_name, name));
    const GivenWeights b(tensors, weights, name);
    packed = b.packed, fp8 = b.fp8, scales = b.fp8_scales;
}

}  // namespace

Object take_layer(Tensors& tensors, Arguments& given, MoeArgs& args, MoeOptions& options) {
    PyObject *x = given.required("x"), *to = given.optional("out");
    args.x = tensors.matrix("x", x);
    args.x_scales = matrix_if_given(tensors, "x_scales", given.optional("x_scales"));
    args.ids = tensors.matrix("ids", given.required("ids"));
    args.weights = matrix_if_given(tensors, "weights", given.optional("weights"));
    take_weights(tensors, given, "gate_up", "gate_up_scales", args.gate_up_packed, args.gate_up, args.gate_up_scales);
    take_weights(tensors, given, "down", "down_scales", args.down_packed, args.down, args.down_scales);
    Object out = to == Py_None ? tensors.empty_like(x, {args.x.rows, args.x.cols}, "bfloat16", "out")
                               : tensors.output("out", to);
    args.out = tensors.matrix("out", out.get(), Access::Write);
    take_workspace(tensors, given.optional("workspace"), args);
    options.stream = tensors.stream(given.optional("stream"), out.get(), args.out.device);
    moe_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    options.gate_up_bias = matrix_if_given(tensors, "gate_up_bias", given.optional("gate_up_bias"));
    options.down_bias = matrix_if_given(tensors, "down_bias", given.optional("down_bias"));
    return out;
}

Object moe_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    MoeArgs args;
    MoeOptions options;
    Object out = take_layer(tensors, given, args, options);
    given.take("first", args.first);
    given.check_all_taken();
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    moe(context, args, options);
    return out;
}

Object explain_moe_text(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    MoeShape shape = shape_of(given);
    std::string device;
    given.take("device", device);
    if (PyObject* const format = given.optional("four_bit"); format != Py_None)
        shape.four_bit = format_named(text("four_bit", format));
    given.take("four_bit_alone", shape.four_bit_alone);
    given.take("biased", shape.biased);
    given.check_all_taken();
    const std::string text = explain(shape, device);
    return Object(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

Object moe_workspace_bytes_of(const Imports&, PyObject* keywords) {
    Arguments given(keywords);
    const MoeShape shape = shape_of(given);
    given.check_all_taken();
    return Object(PyLong_FromLongLong(moe_workspace_bytes(shape)));
}

}  // namespace finegemm::python
