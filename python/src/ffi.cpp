// Handlers of XLA's foreign function interface: what a compiled program of JAX calls. Layer: front end.
#include "ffi.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dlpack.h"
#include "xla.h"

namespace finegemm::python {

namespace {

PyObject* run_in_python =
    nullptr;  // of the first interpreter that asked for handlers, for as long as the process lives

class Gil {
public:
    Gil() = default;
    ~Gil() { PyGILState_Release(state_); }
    Gil(const Gil&) = delete;
    Gil& operator=(const Gil&) = delete;

private:
    PyGILState_STATE state_ = PyGILState_Ensure();
};

xla::Error* failed(const xla::Api& api, const char* message) {
    xla::ErrorCreate error{{sizeof(xla::ErrorCreate), nullptr}, message, xla::kInvalidArgument};
    return api.error_create(&error);
}

DLDataType dtype_of(int32_t type) {
    switch (type) {
        case xla::kBool: return {kDLBool, 8, 1};
        case xla::kS8: return {kDLInt, 8, 1};
        case xla::kS32: return {kDLInt, 32, 1};
        case xla::kS64: return {kDLInt, 64, 1};
        case xla::kU8: return {kDLUInt, 8, 1};
        case xla::kU16: return {kDLUInt, 16, 1};
        case xla::kF16: return {kDLFloat, 16, 1};
        case xla::kF32: return {kDLFloat, 32, 1};
        case xla::kF64: return {kDLFloat, 64, 1};
        case xla::kBF16: return {kDLBfloat, 16, 1};
        case xla::kF8E5M2: return {kDLFloat8_e5m2, 8, 1};
        case xla::kF8E4M3FN: return {kDLFloat8_e4m3fn, 8, 1};
        default: return {kDLComplex, 0, 1};  // nothing takes it, and what refuses it names the argument
    }
}

/// Operands and results of a call, as arrays that are borrowed from XLA.
std::vector<DLManagedTensor> tensors_of(const xla::CallFrame& frame, DLDevice device) {
    std::vector<DLManagedTensor> tensors;
    for (const xla::Buffers* buffers : {&frame.operands, &frame.results})
        for (int64_t i = 0; i < buffers->size; ++i) {
            const xla::Buffer& b = *buffers->items[i];
            const DLTensor tensor{b.data, device, static_cast<int32_t>(b.rank), dtype_of(b.dtype), b.dims, nullptr, 0};
            tensors.push_back({tensor, nullptr, nullptr});
        }
    return tensors;
}

Object text_of(const xla::Text& text) {
    return Object(PyUnicode_FromStringAndSize(text.data, static_cast<Py_ssize_t>(text.size)));
}

Object scalar_of(const xla::Scalar& scalar) {
    switch (scalar.dtype) {
        case xla::kBool: return Object(PyBool_FromLong(*static_cast<const bool*>(scalar.value)));
        case xla::kS32: return Object(PyLong_FromLong(*static_cast<const int32_t*>(scalar.value)));
        case xla::kS64: return Object(PyLong_FromLongLong(*static_cast<const int64_t*>(scalar.value)));
        case xla::kF32: return Object(PyFloat_FromDouble(*static_cast<const float*>(scalar.value)));
        case xla::kF64: return Object(PyFloat_FromDouble(*static_cast<const double*>(scalar.value)));
        default: return Object::shared(Py_None);
    }
}

Object options_of(const xla::Attributes& attributes) {
    Object options(PyDict_New());
    for (int64_t i = 0; i < attributes.size; ++i) {
        const void* at = attributes.values[i];
        const bool is_text = attributes.types[i] == xla::kText;
        if (!is_text && attributes.types[i] != xla::kScalar) continue;
        const Object value =
            is_text ? text_of(*static_cast<const xla::Text*>(at)) : scalar_of(*static_cast<const xla::Scalar*>(at));
        if (PyDict_SetItem(options.get(), text_of(*attributes.names[i]).get(), value.get()) != 0) throw PythonError();
    }
    return options;
}

/// The text of an error, if there is one.
std::optional<std::string> run(const xla::CallFrame& frame, DLDevice device, void* stream) {
    std::vector<DLManagedTensor> tensors = tensors_of(frame, device);
    Object buffers(PyTuple_New(static_cast<Py_ssize_t>(tensors.size())));
    for (size_t i = 0; i < tensors.size(); ++i) {
        Object capsule(PyCapsule_New(&tensors[i], "dltensor", nullptr));
        if (PyTuple_SetItem(buffers.get(), static_cast<Py_ssize_t>(i), capsule.release()) != 0) throw PythonError();
    }
    const Object options = options_of(frame.attributes);
    const Object number = device.device_type == kDLCPU ? Object::shared(Py_None) : Object(PyLong_FromVoidPtr(stream));
    const Object error(
        PyObject_CallFunctionObjArgs(run_in_python, buffers.get(), options.get(), number.get(), nullptr));
    if (error.get() == Py_None) return {};
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(error.get(), &size);
    if (!text) throw PythonError();
    return std::string(text, static_cast<size_t>(size));
}

xla::Error* run_on(const xla::CallFrame& frame, DLDevice device, void* stream) {
    std::optional<std::string> error;
    {
        const Gil held;
        try {
            error = run(frame, device, stream);
        } catch (const PythonError&) {
            PyErr_Clear();
            error = "finegemm: Python has no memory left";
        }
    }
    return error ? failed(*frame.api, error->c_str()) : nullptr;
}

/// Does XLA ask what the handler is made for? It is told XLA's own version, as later ones only add members. One that
/// does not show its functions here has the first that asks.
bool told_version(const xla::CallFrame& frame) {
    const xla::Extension* extension = frame.header.extensions;
    if (!extension || extension->type != xla::kMetadata) return false;
    xla::ApiVersion& asked = reinterpret_cast<const xla::MetadataExtension*>(extension)->metadata->version;
    asked.major = xla::kMajorVersion;
    asked.minor = frame.api ? frame.api->version.minor : xla::kFirstMinorVersion;
    return true;
}

xla::Error* on_cpu(xla::CallFrame* frame) {
    return told_version(*frame) ? nullptr : run_on(*frame, {kDLCPU, 0}, nullptr);
}

xla::Error* on_gpu(xla::CallFrame* frame) {
    if (told_version(*frame)) return nullptr;
    if (frame->api->header.struct_size < sizeof(xla::Api))
        return failed(*frame->api, "finegemm: this jaxlib does not say which GPU a call is for; install a later one");
    xla::StreamGet stream{{sizeof(xla::StreamGet), nullptr}, frame->execution, nullptr};
    if (xla::Error* error = frame->api->stream_get(&stream)) return error;
    xla::DeviceGet device{{sizeof(xla::DeviceGet), nullptr}, frame->execution, 0};
    if (xla::Error* error = frame->api->device_get(&device)) return error;
    return run_on(*frame, {kDLCUDA, device.device}, stream.stream);
}

}  // namespace

Object ffi_handlers(const Imports&, PyObject* run) {
    if (!run_in_python) run_in_python = Object::shared(run).release();
    Object handlers(PyDict_New());
    for (const auto& [platform, handler] : {std::pair("cpu", &on_cpu), std::pair("CUDA", &on_gpu)}) {
        const Object capsule(PyCapsule_New(reinterpret_cast<void*>(handler), "xla._CUSTOM_CALL_TARGET", nullptr));
        if (PyDict_SetItemString(handlers.get(), platform, capsule.get()) != 0) throw PythonError();
    }
    return handlers;
}

}  // namespace finegemm::python
