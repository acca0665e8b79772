// The module finegemm._native: what the Python package calls. Layer: front end.
#include "object.h"

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <finegemm/c_api.h>
#include <finegemm/context.h>
#include <finegemm/error.h>

#include "api/option_lists.h"
#include "arguments.h"
#include "explain.h"
#include "ffi.h"
#include "operations/experts/ep.h"
#include "operations/experts/moe.h"
#include "operations/experts/routing.h"
#include "operations/four_bit.h"
#include "operations/mqa.h"
#include "operations/prenorm.h"
#include "operations/quantize.h"
#include "operations/scale_layout.h"
#include "operations/swiglu.h"
#include "operations/topk.h"
#include "products.h"
#include "tensors.h"
#include "tool/tool.h"

namespace finegemm::python {

namespace {

constexpr const char* kContext = "finegemm.Context";  // the name of its capsules

const char* class_of(Errc code) {
    switch (code) {
        case Errc::InvalidArgument: return "InvalidArgument";
        case Errc::Unsupported: return "Unsupported";
        case Errc::Driver: return "DriverError";
        case Errc::Compile: return "CompileError";
        case Errc::Io: return "IoError";
        case Errc::OutOfMemory: return "OutOfMemory";
        case Errc::Internal: return "InternalError";
        case Errc::Peer: return "PeerError";
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

// What may be given by its place.
constexpr std::string_view kOperands[] = {"a", "sfa", "b", "sfb", "d"};
constexpr std::string_view kEinsum[] = {"equation", "a", "b", "d"};
constexpr std::string_view kCast[] = {"x", "q", "scales"};
constexpr std::string_view kWeights[] = {"x", "q", "scales", "transposed"};
constexpr std::string_view kReencode[] = {"codes", "words", "q", "scales"};
constexpr std::string_view kScales[] = {"sf", "out"};
constexpr std::string_view kMqa[] = {"q", "k", "sfk", "w", "starts", "ends", "d"};
constexpr std::string_view kPagedMqa[] = {"q", "cache", "w", "lengths", "block_table", "schedule", "d"};
constexpr std::string_view kPrenorm[] = {"a", "b", "d", "sqrsum"};
constexpr std::string_view kRoute[] = {"ids", "experts", "inverse", "numbers", "permutation"};
constexpr std::string_view kPermute[] = {"x", "inverse", "q", "scales"};
constexpr std::string_view kCombine[] = {"y", "inverse", "weights", "out"};
constexpr std::string_view kMoe[] = {"x", "ids", "gate_up", "gate_up_scales", "down", "down_scales", "weights", "out"};
constexpr std::string_view kEpMoe[] = {"communicator", "x",           "ids",     "gate_up", "gate_up_scales",
                                       "down",         "down_scales", "weights", "out"};
constexpr std::string_view kTopk[] = {"logits", "k", "indices"};
constexpr std::string_view kMqaTopk[] = {"q", "k", "sfk", "w", "starts", "ends", "topk", "indices"};
constexpr std::string_view kPagedMqaTopk[] = {"q", "cache", "w", "lengths", "block_table", "topk", "indices"};
constexpr std::string_view kFourBit[] = {"a", "sfa", "b", "d"};
constexpr std::string_view kSchedule[] = {"lengths", "slots", "schedule"};

/// Calls a function as the package's calls.py does.
template <auto Function, const auto& Places>
Object with_arguments(const Imports& imports, PyObject* context, PyObject* names, PyObject* args, PyObject* keywords) {
    Arguments given(Places, names, args, keywords);
    return Function(imports, context_in(context), given);
}

Object make_id_in(const Imports&, PyObject* context, PyObject* keywords) {
    return make_communicator_id(context_in(context), keywords);
}
Object make_communicator_in(const Imports&, PyObject* context, PyObject* keywords) {
    return make_communicator(context_in(context), keywords);
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
                         method<with_arguments<einsum_into, kEinsum>>("einsum"),
                         method<with_arguments<quantize_rows_into, kCast>>("quantize_rows"),
                         method<with_arguments<quantize_blocks_into, kCast>>("quantize_blocks"),
                         method<with_arguments<quantize_weights_into, kWeights>>("quantize_weights"),
                         method<with_arguments<quantize_columns_into, kCast>>("quantize_columns"),
                         method<with_arguments<reencode_into, kReencode>>("reencode"),
                         method<with_arguments<swiglu_quantize_into, kCast>>("swiglu_quantize"),
                         method<with_arguments<scale_layout_into, kScales>>("scale_layout"),
                         method<with_arguments<mqa_logits_into, kMqa>>("mqa_logits"),
                         method<with_arguments<paged_mqa_logits_into, kPagedMqa>>("paged_mqa_logits"),
                         method<with_arguments<paged_mqa_schedule_into, kSchedule>>("paged_mqa_schedule"),
                         method<with_arguments<prenorm_gemm_into, kPrenorm>>("prenorm_gemm"),
                         method<with_arguments<route_into, kRoute>>("route"),
                         method<with_arguments<permute_quantize_into, kPermute>>("permute_quantize"),
                         method<with_arguments<combine_into, kCombine>>("combine"),
                         method<with_arguments<moe_into, kMoe>>("moe"),
                         method<with_arguments<ep_moe_into, kEpMoe>>("ep_moe"),
                         method<ep_moe_workspace_bytes_of>("ep_moe_workspace_bytes"),
                         method<make_id_in>("communicator_id"),
                         method<make_communicator_in>("communicator"),
                         method<communicators_of_threads>("communicators_of_threads"),
                         method<place_of>("communicator_place"),
                         method<make_peer_memory>("peer_memory"),
                         method<facts_of_memory>("peer_memory_facts"),
                         method<wait_for>("communicator_wait"),
                         method<end_communicator>("communicator_end"),
                         method<with_arguments<topk_into, kTopk>>("topk"),
                         method<with_arguments<mqa_topk_into, kMqaTopk>>("mqa_topk"),
                         method<with_arguments<paged_mqa_topk_into, kPagedMqaTopk>>("paged_mqa_topk"),
                         method<with_arguments<four_bit_gemm_into, kFourBit>>("four_bit_gemm"),
                         method<packed_four_bit>("pack_four_bit"),
                         method<unpacked_four_bit>("unpack_four_bit"),
                         method<explain_text>("explain"),
                         method<explain_mqa_text>("explain_mqa"),
                         method<explain_topk_text>("explain_topk"),
                         method<explain_prenorm_text>("explain_prenorm"),
                         method<explain_moe_text>("explain_moe"),
                         method<explain_four_bit_text>("explain_four_bit"),
                         method<moe_workspace_bytes_of>("moe_workspace_bytes"),
                         method<open_log>("open_log"),
                         method<finish_log>("finish_log"),
                         method<misspelt>("misspelt"),
                         method<problems_in>("problems"),
                         method<report_in>("report"),
                         method<ffi_handlers>("ffi_handlers"),
                         method<run_tool>("tool"),
                         method<weights>("weights"),
                         {}};

int set_up(PyObject* module) {
    try {
        auto* imports = new (PyModule_GetState(module)) Imports();
        imports->errors = Object(PyImport_ImportModule("finegemm.errors"));
        const Object arrays(PyImport_ImportModule("finegemm.arrays"));
        imports->exported = Object(PyObject_GetAttrString(arrays.get(), "exported"));
        imports->refuse_sign = Object(PyObject_GetAttrString(arrays.get(), "refuse_sign"));
        imports->check_grad = Object(PyObject_GetAttrString(arrays.get(), "check_grad"));
        imports->empty_like = Object(PyObject_GetAttrString(arrays.get(), "empty_like"));
        imports->empty_mn_major = Object(PyObject_GetAttrString(arrays.get(), "empty_mn_major"));
        imports->stream_number = Object(PyObject_GetAttrString(arrays.get(), "stream_number"));
        imports->current_stream = Object(PyObject_GetAttrString(arrays.get(), "current_stream"));
        imports->exchange_name = Object(PyUnicode_InternFromString("__dlpack_c_exchange_api__"));
        imports->requires_grad = Object(PyUnicode_InternFromString("requires_grad"));
        imports->is_neg = Object(PyUnicode_InternFromString("is_neg"));
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
