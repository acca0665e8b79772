// What is added to a product, as Python's keywords say it. Layer: front end.
#include "epilogue.h"

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
        given.take(x.name, to);
    }
    void operator()(const plan::EpilogueArgument& x, ConstMatrix& to) const {
        if (PyObject* row = given.optional(x.name); row != Py_None) to = tensors.row(x.name, row);
    }
    void operator()(const plan::EpilogueArgument& x, ConstStack& to) const {
        if (PyObject* like_d = given.optional(x.name); like_d != Py_None)
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
