// The module finegemm._native: what the Python package calls. Layer: front end.
#include "object.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <finegemm/c_api.h>
#include <finegemm/context.h>
#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>
#include <fmt/format.h>

#include "api/option_lists.h"
#include "arguments.h"
#include "epilogue.h"
#include "explain.h"
#include "k_offsets.h"
#include "plan/fields.h"
#include "scale_layout.h"
#include "tensors.h"
#include "tool/log.h"
#include "tool/tool.h"
#include "tool/weights.h"

namespace finegemm::python {

namespace {

constexpr const char* kContext = "finegemm.Context";  // the name of its capsules
constexpr int64_t kScaleBlock = 128;

const char* class_of(Errc code) {
    switch (code) {
        case Errc::InvalidArgument: return "InvalidArgument";
        case Errc::Unsupported: return "Unsupported";
        case Errc::Driver: return "DriverError";
        case Errc::Compile: return "CompileError";
        case Errc::Io: return "IoError";
        case Errc::OutOfMemory: return "OutOfMemory";
        case Errc::Internal: return "InternalError";
    }
    return "InternalError";
}

void raise(const Imports& imports, Errc code, std::string_view message) {
    const Object kind(PyObject_GetAttrString(imports.errors.get(), class_of(code)));
    const Object text(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
    PyErr_SetObject(kind.get(), text.get());
}

Context& context_in(PyObject* handle) {
    void* context = PyCapsule_GetPointer(handle, kContext);
    if (!context) throw PythonError();
    return *static_cast<Context*>(context);
}

// The functions, as _native.pyi has them.

/// Options of the environment, with those of `overrides` in their place.
Object make_context(const Imports&, PyObject* overrides) {
    Options options = Options::from_environment();
    Arguments given(overrides);
    context_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    options.log = log_of(given.optional("log"));
    given.check_all_taken();
    auto context = std::make_unique<Context>(std::move(options));
    Object capsule(PyCapsule_New(context.get(), kContext, [](PyObject* handle) {
        delete static_cast<Context*>(PyCapsule_GetPointer(handle, kContext));
    }));
    static_cast<void>(context.release());
    return capsule;
}

void check_accumulate(Arguments& given) {
    bool accumulate = false;
    given.take("accumulate", accumulate);
    if (accumulate && given.optional("d") == Py_None)
        throw Error(Errc::InvalidArgument,
                    "accumulate: is set, but d is None, must be what to add to; pass it, of float32");
}

/// Calls `product` of C++ with the options that are given. `out`: the array on `device` whose stream it is without one.
template <typename Product, typename Operands>
void multiply(Product* product, Context& context, const Operands& operands, Arguments& given, Tensors& tensors,
              PyObject* out, Device device, const Epilogue& epilogue = {}) {
    GemmOptions options{.stream = tensors.stream(given.optional("stream"), out, device)};
    call_options([&](const char* name, auto& option) { given.take(name, option); }, options);
    options.epilogue = epilogue;
    given.check_all_taken();
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    product(context, operands, options);
}

/// What D is where nobody says, as arrays call it.
const char* usual_result(const ConstMatrix& a) {
    const ElementType* of = find_type(a.dtype);
    const ElementType* d = of ? find_type(of->results[0]) : nullptr;
    return (d ? d : find_type(DType::BF16))->array_name.data();  // for an A that the library will refuse, anything
}

Object gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    check_accumulate(given);
    PyObject *d = given.optional("d"), *out_dtype = given.optional("out_dtype");
    const auto matrix = [&](const char* name) { return tensors.matrix(name, given.required(name)); };
    const auto scales = [&](const char* name) { return tensors.scales(name, given.required(name)); };
    GemmArgs problem{.a = matrix("a"), .sfa = scales("sfa"), .b = matrix("b"), .sfb = scales("sfb"), .d = {}};
    const Epilogue epilogue = epilogue_of(given, tensors, false);
    const ConstMatrix& c = epilogue.c.matrix;
    const std::string_view usual = plan::is_given(c, {}) ? find_type(c.dtype)->array_name : usual_result(problem.a);
    const std::string_view format = out_dtype == Py_None ? usual : text("out_dtype", out_dtype);
    const DType made = type_named("out_dtype", format);
    const int64_t width = plan::width_of_d(epilogue, problem.b.rows);
    Object out = d == Py_None ? tensors.empty_like(given.required("a"), {problem.a.rows, width}, format.data(), "d")
                              : tensors.output("d", d);
    problem.d = tensors.matrix("d", out.get(), Access::Write);
    if (out_dtype != Py_None && problem.d.dtype != made)
        throw Error(Errc::InvalidArgument,
                    fmt::format("out_dtype: is '{}', must be the dtype of d, which has another; leave it out", format));
    multiply(gemm, context, problem, given, tensors, out.get(), problem.d.device, epilogue);
    return out;
}

/// An argument that says which rows a group has.
struct GroupArgument {
    const char* name;
    GroupForm form;
    PyObject* x;
};

/// The one that is given of the four.
GroupArgument group_argument(Arguments& given) {
    const GroupArgument all[] = {{"offsets", GroupForm::Offsets, given.optional("offsets")},
                                 {"m_indices", GroupForm::Indices, given.optional("m_indices")},
                                 {"prefix_sums", GroupForm::PrefixSums, given.optional("prefix_sums")},
                                 {"masked_m", GroupForm::Masked, given.optional("masked_m")}};
    const auto is_given = [](const GroupArgument& g) { return g.x != Py_None; };
    if (const auto count = std::ranges::count_if(all, is_given); count != 1)
        throw Error(Errc::InvalidArgument, fmt::format("offsets, m_indices, prefix_sums, masked_m: {} of them are "
                                                       "given, must be one; leave the others out",
                                                       count));
    return *std::ranges::find_if(all, is_given);
}

Object grouped_gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    const GroupArgument which = group_argument(given);
    const Numbers numbers = tensors.numbers(which.name, which.x);
    Groups groups{.form = which.form, .data = numbers.data, .size = numbers.size, .device = numbers.device};
    given.take("alignment", groups.alignment);
    given.take("expected_m", groups.expected_m);
    const bool masked = which.form == GroupForm::Masked;
    const auto rows = [&](const char* name, PyObject* x, Access access) {
        return masked ? tensors.stack(name, x, access) : Stack{tensors.matrix(name, x, access)};
    };
    PyObject *a = given.required("a"), *sfa = given.required("sfa"), *d = given.optional("d");
    GroupedGemmArgs problem{.a = rows("a", a, Access::Read),
                            .sfa = masked ? tensors.scale_stack("sfa", sfa) : Stack{tensors.scales("sfa", sfa)},
                            .b = tensors.stack("b", given.required("b")),
                            .sfb = tensors.scale_stack("sfb", given.required("sfb")),
                            .d = {},
                            .groups = groups};
    const int64_t m = problem.a.matrix.rows, n = problem.b.matrix.rows;
    Object out = d != Py_None ? tensors.output("d", d)
                 : masked     ? tensors.empty_like(a, {problem.a.count, m, n}, usual_result(problem.a.matrix), "d")
                              : tensors.empty_like(a, {m, n}, usual_result(problem.a.matrix), "d");
    problem.d = rows("d", out.get(), Access::Write);
    with_names_of_python(which.name, [&] {
        multiply(grouped_gemm, context, problem, given, tensors, out.get(), problem.d.matrix.device,
                 epilogue_of(given, tensors, masked));
    });
    return out;
}

Object k_grouped_gemm_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    check_accumulate(given);
    PyObject *offsets = given.optional("offsets"), *sizes = given.optional("sizes");
    if ((offsets == Py_None) == (sizes == Py_None))
        throw Error(Errc::InvalidArgument,
                    fmt::format("offsets, sizes: {} given, must be one, which says which k each group has; pass an "
                                "array of int32, or a list of ints",
                                offsets == Py_None ? "none of them is" : "both are"));
    PyObject *a = given.required("a"), *b = given.required("b"), *d = given.optional("d");
    const Matrix a_scales = tensors.scales("sfa", given.required("sfa"));
    const Matrix b_scales = tensors.scales("sfb", given.required("sfb"));
    std::vector<int32_t> room;
    const Numbers numbers =
        sizes == Py_None ? k_offsets_of(tensors, offsets, room) : k_offsets_of_sizes(tensors, sizes, room);
    const KOperand left = tensors.k_operand("a", a, a_scales, numbers),
                   right = tensors.k_operand("b", b, b_scales, numbers);
    if (left.layout != right.layout)
        throw Error(Errc::InvalidArgument,
                    "b: must have as many dimensions as a: two where groups are columns of one "
                    "matrix, one where they are blocks; lay both out alike");
    if (sizes != Py_None) check_sum_of_sizes(room.back(), left.matrix.cols);
    KGroupedGemmArgs problem{.a = left.matrix,
                             .sfa = a_scales,
                             .b = right.matrix,
                             .sfb = b_scales,
                             .d = {},
                             .offsets = numbers.data,
                             .groups = numbers.size - 1,
                             .offsets_device = numbers.device,
                             .layout = left.layout};
    Object out = d == Py_None ? tensors.empty_like(a, {problem.groups, problem.a.rows, problem.b.rows}, "float32", "d")
                              : tensors.output("d", d);
    problem.d = tensors.stack("d", out.get(), Access::Write);
    multiply(k_grouped_gemm, context, problem, given, tensors, out.get(), problem.d.matrix.device);
    return out;
}

constexpr int64_t blocks(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

template <auto Quantize, bool SquareBlocks>
Object quantize_into(const Imports& imports, Context& context, Arguments& given) {
    Tensors tensors(imports);
    PyObject *x = given.required("x"), *q = given.optional("q"), *scales = given.optional("scales");
    const Matrix in = tensors.matrix("x", x);
    const int64_t scale_rows = SquareBlocks ? blocks(in.rows) : in.rows;
    Object out =
        q == Py_None ? tensors.empty_like(x, {in.rows, in.cols}, "float8_e4m3fn", "q") : tensors.output("q", q);
    Object out_scales = scales == Py_None ? tensors.empty_like(x, {scale_rows, blocks(in.cols)}, "float32", "scales")
                                          : tensors.output("scales", scales);
    const Matrix out_matrix = tensors.matrix("q", out.get(), Access::Write);
    const Matrix scale_matrix = tensors.matrix("scales", out_scales.get(), Access::Write);
    QuantizeOptions options{.stream = tensors.stream(given.optional("stream"), out.get(), out_matrix.device)};
    given.take("power_of_two_scales", options.power_of_two_scales);
    given.check_all_taken();
    Object both(PyTuple_Pack(2, out.get(), out_scales.get()));
    WithoutGil others_run;
    options.poll = [&](double) { others_run.run_handlers(); };
    Quantize(context, in, out_matrix, scale_matrix, options);
    return both;
}

// What may be given by its place.
constexpr const char* kOperands[] = {"a", "sfa", "b", "sfb", "d"};
constexpr const char* kCast[] = {"x", "q", "scales"};
constexpr const char* kScales[] = {"sf", "out"};

/// Calls a function as the package's calls.py does.
template <auto Function, const auto& Places>
Object with_arguments(const Imports& imports, PyObject* context, PyObject* names, PyObject* args, PyObject* keywords) {
    Arguments given(Places, names, args, keywords);
    return Function(imports, context_in(context), given);
}

Object problems_in(const Imports&, PyObject* context) { return problems(context_in(context)); }

Object report_in(const Imports&, PyObject* context, PyObject* arguments) {
    return report(context_in(context), arguments);
}

/// A function as Python calls it, with an array of arguments; exceptions of C++ become Python's.
template <auto Body, typename... Values>
PyObject* called(Object (*)(const Imports&, Values...), PyObject* module, PyObject* const* args, Py_ssize_t count) {
    const auto& imports = *static_cast<const Imports*>(PyModule_GetState(module));
    try {
        if (count != sizeof...(Values)) {
            PyErr_Format(PyExc_TypeError, "takes %zu arguments, not %zd", sizeof...(Values), count);
            return nullptr;
        }
        try {
            return [&]<size_t... I>(std::index_sequence<I...>) {
                return Body(imports, args[I]...).release();
            }(std::index_sequence_for<Values...>());
        } catch (const Error& e) {
            raise(imports, e.code(), e.what());
        } catch (const std::bad_alloc&) {
            raise(imports, Errc::OutOfMemory, "the host has no memory left");
        } catch (const std::exception& e) {
            raise(imports, Errc::Internal, e.what());
        }
    } catch (const PythonError&) {
        // Python's error is set.
    }
    return nullptr;
}

template <auto Body>
PyMethodDef method(const char* name) {
    constexpr _PyCFunctionFast kFunction = [](PyObject* module, PyObject* const* args, Py_ssize_t count) {
        return called<Body>(Body, module, args, count);
    };
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kFunction)), METH_FASTCALL, nullptr};
}

PyMethodDef methods[] = {method<make_context>("context"),
                         method<with_arguments<gemm_into, kOperands>>("gemm"),
                         method<with_arguments<grouped_gemm_into, kOperands>>("grouped_gemm"),
                         method<with_arguments<k_grouped_gemm_into, kOperands>>("k_grouped_gemm"),
                         method<with_arguments<quantize_into<quantize_rows, false>, kCast>>("quantize_rows"),
                         method<with_arguments<quantize_into<quantize_blocks, true>, kCast>>("quantize_blocks"),
                         method<with_arguments<scale_layout_into, kScales>>("scale_layout"),
                         method<explain_text>("explain"),
                         method<open_log>("open_log"),
                         method<finish_log>("finish_log"),
                         method<misspelt>("misspelt"),
                         method<problems_in>("problems"),
                         method<report_in>("report"),
                         method<run_tool>("tool"),
                         method<weights>("weights"),
                         {}};

int set_up(PyObject* module) {
    try {
        auto* imports = new (PyModule_GetState(module)) Imports();
        imports->errors = Object(PyImport_ImportModule("finegemm.errors"));
        const Object arrays(PyImport_ImportModule("finegemm.arrays"));
        imports->exported = Object(PyObject_GetAttrString(arrays.get(), "exported"));
        imports->check_sign = Object(PyObject_GetAttrString(arrays.get(), "check_sign"));
        imports->check_grad = Object(PyObject_GetAttrString(arrays.get(), "check_grad"));
        imports->empty_like = Object(PyObject_GetAttrString(arrays.get(), "empty_like"));
        imports->empty_mn_major = Object(PyObject_GetAttrString(arrays.get(), "empty_mn_major"));
        imports->stream_number = Object(PyObject_GetAttrString(arrays.get(), "stream_number"));
        imports->current_stream = Object(PyObject_GetAttrString(arrays.get(), "current_stream"));
        imports->exchange_name = Object(PyUnicode_InternFromString("__dlpack_c_exchange_api__"));
        imports->requires_grad = Object(PyUnicode_InternFromString("requires_grad"));
        return PyModule_AddStringConstant(module, "version", finegemm_version());
    } catch (const PythonError&) {
        return -1;
    }
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(set_up)}, {}};

PyModuleDef definition{.m_base = PyModuleDef_HEAD_INIT,
                       .m_name = "_native",
                       .m_doc = nullptr,
                       .m_size = sizeof(Imports),
                       .m_methods = methods,
                       .m_slots = slots,
                       .m_traverse = nullptr,
                       .m_clear = nullptr,
                       .m_free = [](void* module) {
                           auto* state = PyModule_GetState(static_cast<PyObject*>(module));
                           if (state) static_cast<Imports*>(state)->~Imports();
                       }};

}  // namespace

}  // namespace finegemm::python

PyMODINIT_FUNC PyInit__native() { return PyModuleDef_Init(&finegemm::python::definition); }
