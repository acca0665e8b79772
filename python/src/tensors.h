// Tensors of Python libraries. Layer: front end.
#pragma once

#include "object.h"

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <finegemm/gemm.h>

#include "dlpack.h"
#include "matrix.h"

namespace finegemm::python {

/// State of the module.
struct Imports {
    Object errors;  // finegemm.errors
    // Functions of finegemm.arrays.
    Object exported, refuse_sign, check_grad, empty_like, empty_mn_major, current_stream, stream_number;
    Object exchange_name;  // "__dlpack_c_exchange_api__"
    Object requires_grad;  // "requires_grad"
    Object is_neg;         // "is_neg"
};

enum class Access { Read, Write };

/// A matrix, or several where the tensor has three dimensions.
struct Matrices {
    Stack stack;
    bool several;
};

struct KOperand {
    Matrix matrix;
    KLayout layout;
};

/// The tensors of one call. What it reads of them is borrowed: good while it and the call's arguments live.
class Tensors {
public:
    /// `turned`: letters of the operands, a or b, that come with K before their rows, as their scales then do.
    explicit Tensors(const Imports& imports, std::string_view turned = "") : imports_(imports), turned_(turned) {}

    /// Throws Error that calls the tensor `name`, or PythonError.
    Matrix matrix(std::string_view name, PyObject* x, Access access = Access::Read);
    Stack stack(std::string_view name, PyObject* x, Access access = Access::Read, int counted = 0);
    /// `counted`: the dimension that counts matrices, 0 or 1; none: there is one matrix.
    Stack one_or_more(std::string_view name, PyObject* x, std::optional<int> counted, Access access = Access::Read);
    Matrices matrices(std::string_view name, PyObject* x, Access access = Access::Read);
    /// Nothing for None: not all types of operands have scales.
    Matrix scales(std::string_view name, PyObject* x);
    Stack scale_stack(std::string_view name, PyObject* x);
    /// A vector, as a matrix of one row.
    Matrix row(std::string_view name, PyObject* x, Access access = Access::Read);
    Numbers numbers(std::string_view name, PyObject* x, Access access = Access::Read);
    Stack heads(std::string_view name, PyObject* x, int dimensions);
    Matrix lengths(std::string_view name, PyObject* x);
    Matrix pages(std::string_view name, PyObject* x, int64_t dim);
    /// A or B of a K-grouped product: a matrix, or a vector of blocks, whose extents its scales tell, or, where it has
    /// none, the end of the last group.
    KOperand k_operand(std::string_view name, PyObject* x, const Matrix& scales, const Numbers& offsets);
    /// A new row-major tensor of x's library on x's device; `shape`: of one to three dimensions.
    Object empty_like(PyObject* x, std::initializer_list<int64_t> shape, const char* format, const char* name) const;
    /// Likewise, its rows contiguous and its columns at multiples of 16 bytes.
    Object empty_mn_major(PyObject* x, std::span<const int64_t> shape, const char* format, const char* name) const;
    /// `given`, unless autograd is to know what is written to it, which it does not see.
    Object output(std::string_view name, PyObject* given);
    /// `given`, a number or an object that has one, where it is not None; else the stream on which the library of `x`,
    /// which is on `device`, works now.
    Stream stream(PyObject* given, PyObject* x, Device device);

private:
    Object empty(const Object& by, PyObject* x, std::span<const int64_t> shape, const char* format,
                 const char* name) const;
    const DLPackExchangeAPI* exchange_of(PyObject* x);
    const DLTensor& exported(std::string_view name, PyObject* x, Access access);
    void check_sign(std::string_view name, PyObject* x, const DLTensor& tensor);
    DLTensor borrowed(std::string_view name, PyObject* x, Access access);
    DLTensor tensor(std::string_view name, PyObject* x, Access access);
    Matrix turned(std::string_view name, const Matrix& m) const;

    const Imports& imports_;
    std::string_view turned_;
    // The last type that was asked for its functions: most often all tensors of a call have one.
    PyTypeObject* type_ = nullptr;
    const DLPackExchangeAPI* exchange_ = nullptr;
    Object is_neg_;  // of the type; null where no view negates what lies in memory
    std::vector<Object> capsules_;
};

}  // namespace finegemm::python
