// What is added to a product, as Python's keywords say it. Layer: front end.
#include "epilogue.h"

namespace finegemm::python {

Epilogue epilogue_of(Arguments& given, Tensors& tensors, std::optional<int> counted) {
    Epilogue epilogue;
    given.take("alpha", epilogue.alpha);
    given.take("beta", epilogue.beta);
    if (PyObject* c = given.optional("c"); c != Py_None) epilogue.c = tensors.one_or_more("c", c, counted);
    if (PyObject* bias = given.optional("bias"); bias != Py_None) epilogue.bias = tensors.row("bias", bias);
    return epilogue;
}

}  // namespace finegemm::python
