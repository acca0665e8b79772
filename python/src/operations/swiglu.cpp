// finegemm.swiglu_quantize. Layer: front end.
#include "operations/swiglu.h"

#include <array>

#include <finegemm/swiglu.h>

#include "api/option_lists.h"
#include "operations/row_groups.h"

namespace finegemm::python {

namespace {

/// [M] of a matrix, [G, M] of a stack.
Matrix weights_of(Tensors& tensors, PyObject* x, bool several) {
    if (x == Py_None) return {};
    return several ? tensors.matrix("weights", x) : tensors.row("weights", x);
}

}  // namespace

Object swiglu_quantize_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *x = given.required("x"), *given_q = given.optional("q"), *given_scales = given.optional("scales");
    SwigluArgs args;
    const char* const groups = take_groups(tensors, given, args.groups);
    const auto [in, several] = tensors.matrices("x", x);
    args.x = in;
    const int64_t count = in.count, m = in.matrix.rows, pairs = in.matrix.cols / 2, blocks = (pairs + 127) / 128;
    const Object q = given_q != Py_None ? tensors.output("q", given_q)
                     : several          ? tensors.empty_like(x, {count, m, pairs}, "float8_e4m3fn", "q")
                                        : tensors.empty_like(x, {m, pairs}, "float8_e4m3fn", "q");
    const std::array<int64_t, 3> shape{count, m, blocks};
    const Object scales = given_scales != Py_None ? tensors.output("scales", given_scales)
                                                  : tensors.empty_mn_major(x, std::span(shape).subspan(several ? 0 : 1),
                                                                           "float32", "scales");
    args.q = tensors.matrices("q", q.get(), Access::Write).stack;
    args.scales = tensors.matrices("scales", scales.get(), Access::Write).stack;
    args.weights = weights_of(tensors, given.optional("weights"), several);
    SwigluOptions options{.stream = tensors.stream(given.optional("stream"), q.get(), args.q.matrix.device)};
    swiglu_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    given.check_all_taken();
    Object both(PyTuple_Pack(2, q.get(), scales.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    if (!groups) swiglu_quantize(context, args, options);
    else with_names_of_python(groups, [&] { swiglu_quantize(context, args, options); });
    return both;
}

}  // namespace finegemm::python
