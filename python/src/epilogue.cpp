// What is added to a product, as Python's keywords say it. Layer: front end.
#include "epilogue.h"

#include <utility>

#include "plan/fields.h"

namespace finegemm::python {

namespace {

/// Takes arguments by the type of what takes them.
struct Taker {
    Arguments& given;
    Tensors& tensors;
    std::optional<int> counted;

    template <typename T>
    void operator()(const plan::EpilogueArgument& x, T& to) const {
        given.take_rest(x.name, to);
    }
    void operator()(const plan::EpilogueArgument& x, ConstMatrix& to) const {
        if (PyObject* row = given.rest(x.name); row && row != Py_None) to = tensors.row(x.name, row);
    }
    void operator()(const plan::EpilogueArgument& x, Stack& to) const {
        if (PyObject* scales = given.rest(x.name); scales && scales != Py_None)
            to = tensors.one_or_more(x.name, scales, counted, Access::Write);
    }
    /// A vector, or one for each matrix, as rows, or as columns where matrices are beside one another.
    void operator()(const plan::EpilogueArgument& x, RowNumbers& to) const {
        PyObject* const numbers = given.rest(x.name);
        if (!numbers || numbers == Py_None) return;
        ConstMatrix m = counted ? tensors.matrix(x.name, numbers) : tensors.row(x.name, numbers);
        if (counted == 1) std::swap(m.rows, m.cols), std::swap(m.row_stride, m.col_stride);
        to.rows = {{m.data, m.dtype, m.cols, 1, m.col_stride, 1, m.device}, m.rows, m.row_stride};
    }
    void operator()(const plan::EpilogueArgument& x, RowIndices& to) const {
        PyObject* const indices = given.rest(x.name);
        if (!indices || indices == Py_None) return;
        const Numbers numbers = tensors.numbers(x.name, indices);
        to.rows = {numbers.data, DType::I32, numbers.size, 1, 1, 1, numbers.device};
    }
    void operator()(const plan::EpilogueArgument& x, ConstStack& to) const {
        if (PyObject* like_d = given.rest(x.name); like_d && like_d != Py_None)
            to = tensors.one_or_more(x.name, like_d, counted);
    }
};

}  // namespace

Epilogue epilogue_of(Arguments& given, Tensors& tensors, std::optional<int> counted) {
    Epilogue epilogue;
    plan::epilogue_arguments(Taker{given, tensors, counted}, epilogue);
    return epilogue;
}

}  // namespace finegemm::python
