// Tensors of Python libraries: by DLPack's C functions where their type has them, else by finegemm.arrays.
// Layer: front end.
#include "tensors.h"

#include <algorithm>
#include <array>

#include <finegemm/error.h>
#include <fmt/format.h>

namespace finegemm::python {

namespace {

Object string(std::string_view text) {
    return Object(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}
Object integer(int64_t value) { return Object(PyLong_FromLongLong(value)); }

template <typename... Objects>
Object call(const Object& function, const Objects&... arguments) {
    return Object(PyObject_CallFunctionObjArgs(function.get(), arguments..., nullptr));
}

/// Null where x lacks it.
Object attribute(PyObject* x, const Object& name) {
    PyObject* value = PyObject_GetAttr(x, name.get());
    if (value) return Object(value);
    PyErr_Clear();
    return {};
}

}  // namespace

/// The functions of x's type; null where it has none that are known here.
const DLPackExchangeAPI* Tensors::exchange_of(PyObject* x) {
    if (Py_TYPE(x) == type_) return exchange_;
    type_ = Py_TYPE(x);
    exchange_ = nullptr;
    const Object capsule = attribute(reinterpret_cast<PyObject*>(type_), imports_.exchange_name);
    if (!capsule.get()) return nullptr;
    const auto* found =
        static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
    if (!found) PyErr_Clear();
    else if (found->header.version.major == kDLPackVersion.major && found->dltensor_from_py_object_no_sync)
        exchange_ = found;
    is_neg_ = attribute(reinterpret_cast<PyObject*>(type_), imports_.is_neg);
    return exchange_;
}

/// What a capsule holds, one that finegemm.arrays makes where x is none. It is not consumed: the tensor is only
/// borrowed.
const DLTensor& Tensors::exported(std::string_view name, PyObject* x, Access access) {
    PyObject *writable = access == Access::Write ? Py_True : Py_False, *capsule = x;
    if (!PyCapsule_CheckExact(x))
        capsule = capsules_.emplace_back(call(imports_.exported, string(name).get(), x, writable)).get();
    if (PyCapsule_IsValid(capsule, "dltensor"))
        return static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->dl_tensor;
    auto* versioned = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (!versioned) throw PythonError();
    if (versioned->version.major != kDLPackVersion.major)
        throw Error(Errc::Unsupported, fmt::format("{}: comes by DLPack {}.{}, must come by DLPack 1; pass an array of "
                                                   "a library that has it",
                                                   name, versioned->version.major, versioned->version.minor));
    if (access == Access::Write && (versioned->flags & kDLReadOnly))
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: the array is read-only; pass one that can be written", name));
    return versioned->dl_tensor;
}

/// Torch keeps the sign of some views, imaginary parts of conjugates say, in a bit, of which DLPack does not tell. Of
/// 8 bits there are none; all others are asked, as shape and strides of such views can be any.
void Tensors::check_sign(std::string_view name, PyObject* x, const DLTensor& tensor) {
    if (is_neg_.get() && tensor.dtype.bits > 8 && call(is_neg_, x).get() == Py_True)
        call(imports_.refuse_sign, string(name).get());
}

/// Its shape and strides are borrowed.
DLTensor Tensors::borrowed(std::string_view name, PyObject* x, Access access) {
    DLTensor tensor;
    if (const DLPackExchangeAPI* exchange = exchange_of(x)) {
        if (exchange->dltensor_from_py_object_no_sync(x, &tensor) == 0) {
            check_sign(name, x, tensor);
            return tensor;
        }
        PyErr_Clear();  // what follows fails too, and says for which argument
    }
    return exported(name, x, access);
}

DLTensor Tensors::tensor(std::string_view name, PyObject* x, Access access) {
    const DLTensor tensor = borrowed(name, x, access);
    check_memory(name, tensor);
    return tensor;
}

/// The matrix that an operand, or its scales, is meant to be.
Matrix Tensors::turned(std::string_view name, const Matrix& m) const {
    const bool is_turned = !turned_.empty() && turned_.find(name.back()) != turned_.npos;
    return is_turned ? transposed(m) : m;
}

Matrix Tensors::matrix(std::string_view name, PyObject* x, Access access) {
    return turned(name, matrix_of(name, tensor(name, x, access)));
}
Stack Tensors::stack(std::string_view name, PyObject* x, Access access, int counted) {
    Stack all = stack_of(name, tensor(name, x, access), counted);
    all.matrix = turned(name, all.matrix);
    return all;
}
Matrices Tensors::matrices(std::string_view name, PyObject* x, Access access) {
    const DLTensor given = tensor(name, x, access);
    if (given.ndim == 2) return {{matrix_of(name, given)}, false};
    if (given.ndim == 3) return {stack_of(name, given), true};
    throw Error(
        Errc::InvalidArgument,
        fmt::format("{}: has {} dimensions, must have 2, or 3 for several matrices; reshape it", name, given.ndim));
}
Matrix Tensors::scales(std::string_view name, PyObject* x) { return x == Py_None ? Matrix() : matrix(name, x); }
Stack Tensors::one_or_more(std::string_view name, PyObject* x, std::optional<int> counted, Access access) {
    return counted ? stack(name, x, access, *counted) : Stack{matrix(name, x, access)};
}
Stack Tensors::scale_stack(std::string_view name, PyObject* x) { return x == Py_None ? Stack() : stack(name, x); }
Matrix Tensors::row(std::string_view name, PyObject* x, Access access) { return row_of(name, tensor(name, x, access)); }
Numbers Tensors::numbers(std::string_view name, PyObject* x, Access access) {
    return numbers_of(name, tensor(name, x, access));
}

Stack Tensors::heads(std::string_view name, PyObject* x, int dimensions) {
    return heads_of(name, tensor(name, x, Access::Read), dimensions);
}
Matrix Tensors::lengths(std::string_view name, PyObject* x) { return lengths_of(name, tensor(name, x, Access::Read)); }
Matrix Tensors::pages(std::string_view name, PyObject* x, int64_t dim) {
    return pages_of(name, tensor(name, x, Access::Read), dim);
}

KOperand Tensors::k_operand(std::string_view name, PyObject* x, const Matrix& scales, const Numbers& offsets) {
    const DLTensor given = tensor(name, x, Access::Read);
    if (given.ndim != 1) return {turned(name, matrix_of(name, given)), KLayout::Columns};
    constexpr int64_t kScaleBlock = 128;
    if (scales.data) return {blocks_of(name, given, scales.rows, scales.cols * kScaleBlock), KLayout::Blocks};
    if (offsets.device.type != DeviceType::Cpu)
        throw Error(Errc::InvalidArgument,
                    "offsets: are not on the CPU, must be there where a and b have one dimension, whose extents they "
                    "tell; copy them to the host, or lay groups out as columns");
    const int64_t k = offsets.data[offsets.size - 1], elements = given.shape[0];
    if (k <= 0 || elements % k != 0)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has {} elements in one dimension, must have a multiple of K, which is {}, where "
                                "the last group ends; pass all groups, one behind the other, or two dimensions",
                                name, elements, k));
    return {blocks_of(name, given, elements / k, k), KLayout::Blocks};
}

Object Tensors::empty(const Object& by, PyObject* x, std::span<const int64_t> shape, const char* format,
                      const char* name) const {
    std::array<Object, 3> extents;  // null ends the arguments
    std::ranges::transform(shape, extents.begin(), integer);
    return call(by, x, string(format).get(), string(name).get(), extents[0].get(), extents[1].get(), extents[2].get());
}

Object Tensors::empty_like(PyObject* x, std::initializer_list<int64_t> shape, const char* format,
                           const char* name) const {
    return empty(imports_.empty_like, x, shape, format, name);
}

Object Tensors::empty_mn_major(PyObject* x, std::span<const int64_t> shape, const char* format,
                               const char* name) const {
    return empty(imports_.empty_mn_major, x, shape, format, name);
}

Object Tensors::output(std::string_view name, PyObject* given) {
    if (exchange_of(given) && attribute(given, imports_.requires_grad).get() == Py_True)
        call(imports_.check_grad, string(name).get(), given);
    return Object::shared(given);
}

Stream Tensors::stream(PyObject* given, PyObject* x, Device device) {
    Object number = given == Py_None ? Object() : call(imports_.stream_number, given);  // is refused on the CPU, too
    if (device.type != DeviceType::Cuda) return nullptr;
    Stream stream = nullptr;
    if (!number.get()) {
        if (const DLPackExchangeAPI* exchange = exchange_of(x)) {
            if (exchange->current_work_stream(kDLCUDA, device.index, &stream) != 0) throw PythonError();
            return stream;
        }
        number = call(imports_.current_stream, x);
    }
    stream = PyLong_AsVoidPtr(number.get());
    if (PyErr_Occurred()) throw PythonError();
    return stream;
}

}  // namespace finegemm::python
