// Python's values as C++'s. Layer: front end.
#include "arguments.h"

#include <algorithm>
#include <utility>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "plan/elements.h"

namespace finegemm::python {

namespace {

[[noreturn]] void refuse_type(const char* name, const char* wanted, PyObject* x) {
    PyErr_Format(PyExc_TypeError, "%s: must be %s, not of %R", name, wanted, Py_TYPE(x));
    throw PythonError();
}

/// As inspect.Signature.bind says it.
template <typename... Values>
[[noreturn]] void refuse_call(const char* format, Values... values) {
    PyErr_Format(PyExc_TypeError, format, values...);
    throw PythonError();
}

[[noreturn]] void refuse_size(const char* name, PyObject* x, int bits) {
    const Object digits(PyObject_Str(x));
    throw Error(Errc::InvalidArgument, fmt::format("{}: {} is given, must fit into {} bits; look at what computed it",
                                                   name, text(name, digits.get()), bits));
}

/// Is x NumPy's bool? That is no subclass of bool. NumPy 2 calls it numpy.bool.
bool is_numpy_bool(PyObject* x) {
    const Object type(PyObject_Str(reinterpret_cast<PyObject*>(Py_TYPE(x))));
    const std::string_view name = text("type", type.get());
    return name == "<class 'numpy.bool'>" || name == "<class 'numpy.bool_'>";
}

}  // namespace

std::string_view text(const char* name, PyObject* x) {
    if (!PyUnicode_Check(x)) refuse_type(name, "a str", x);
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(x, &size);
    if (!data) throw PythonError();
    const std::string_view all(data, static_cast<size_t>(size));
    if (const size_t nul = all.find('\0'); nul != all.npos)
        throw Error(Errc::InvalidArgument,
                    fmt::format("{}: has the character NUL behind '{}', must have none, as names and paths end there; "
                                "leave it out",
                                name, all.substr(0, nul)));
    return all;
}

int64_t integer(const char* name, PyObject* x) {
    if (!PyIndex_Check(x)) refuse_type(name, "an int", x);
    int beyond = 0;
    const long long value = PyLong_AsLongLongAndOverflow(x, &beyond);
    if (beyond) refuse_size(name, x, 64);
    if (value == -1 && PyErr_Occurred()) throw PythonError();
    return value;
}

int32_t integer32(const char* name, PyObject* x) {
    const int64_t value = integer(name, x);
    if (!std::in_range<int32_t>(value)) refuse_size(name, x, 32);
    return static_cast<int32_t>(value);
}

float real(const char* name, PyObject* x) {
    const double value = PyFloat_AsDouble(x);  // of a 0-dimensional array, too
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        refuse_type(name, "a number", x);
    }
    return static_cast<float>(value);
}

bool boolean(const char* name, PyObject* x) {
    if (!PyBool_Check(x) && !is_numpy_bool(x)) refuse_type(name, "True or False", x);
    const int value = PyObject_IsTrue(x);
    if (value < 0) throw PythonError();
    return value != 0;
}

Numerics numerics_named(std::string_view name) {
    if (name == "fast") return Numerics::Fast;
    if (name == "exact") return Numerics::Exact;
    if (name == "hopper") return Numerics::Hopper;
    throw Error(Errc::InvalidArgument, fmt::format("numerics: '{}' is none of 'fast', 'exact' and 'hopper'", name));
}

Compiler compiler_named(std::string_view name) {
    if (name == "nvrtc") return Compiler::Nvrtc;
    if (name == "nvcc") return Compiler::Nvcc;
    throw Error(Errc::InvalidArgument, fmt::format("compiler: '{}' is neither 'nvrtc' nor 'nvcc'", name));
}

LogitsForm form_named(std::string_view name) {
    if (name == "filled") return LogitsForm::Filled;
    if (name == "untouched") return LogitsForm::Untouched;
    if (name == "compressed") return LogitsForm::Compressed;
    throw Error(Errc::InvalidArgument,
                fmt::format("form: '{}' is none of 'filled', 'untouched' and 'compressed'; pass one of them", name));
}

Relu relu_named(std::string_view name) {
    if (name == "exact") return Relu::Exact;
    if (name == "abs") return Relu::Abs;
    throw Error(Errc::InvalidArgument, fmt::format("relu: '{}' is neither 'exact' nor 'abs'; pass one of them", name));
}

DType type_named(std::string_view argument, std::string_view name) {
    for (const ElementType& x : kElementTypes)
        if (x.array_name == name) return x.dtype;
    throw Error(Errc::InvalidArgument,
                fmt::format("{}: '{}' is no type that is known, must be {}; pass the name of one", argument, name,
                            names_of([](const ElementType&) { return true; }, &ElementType::array_name)));
}

void Arguments::add(std::string_view name, PyObject* value) {
    if (count_ == kMost) refuse_call("too many arguments");
    given_[count_++] = {name, value, false};
    ++left_;
}

Arguments::Arguments(PyObject* keywords) {
    PyObject *name = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(keywords, &at, &name, &value);) add(text("keyword", name), value);
}

Arguments::Arguments(std::span<const std::string_view> places, PyObject* names, PyObject* args, PyObject* keywords)
    : Arguments(keywords) {
    PyObject *name = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; names != Py_None && PyDict_Next(keywords, &at, &name, &value);)
        if (PySet_Contains(names, name) != 1) refuse_call("got an unexpected keyword argument '%U'", name);
    const auto placed = static_cast<size_t>(PyTuple_Size(args));
    if (placed > places.size()) refuse_call("too many positional arguments");
    const std::span by_name(given_.data(), count_);
    for (size_t i = 0; i < placed; ++i) {
        if (std::ranges::find(by_name, places[i], &Argument::name) != by_name.end())
            refuse_call("multiple values for argument '%s'", places[i].data());
        add(places[i], PyTuple_GetItem(args, static_cast<Py_ssize_t>(i)));
    }
}

void Arguments::refuse_missing(std::string_view name) {
    refuse_call("missing a required argument: '%s'", std::string(name).c_str());
}

void Arguments::check_all_taken() const {
    if (left_ == 0) return;
    for (const Argument& x : std::span(given_.data(), count_))
        if (!x.taken) throw Error(Errc::Internal, fmt::format("{}: is read by nothing; please report it", x.name));
}

Error renamed(const Error& error, const std::string& numbers) {
    if (error.code() != Errc::InvalidArgument) return error;
    const std::pair<std::string_view, std::string> names[] = {{"groups: offsets[", numbers + "["},
                                                              {"groups: indices[", numbers + "["},
                                                              {"groups: prefix_sums[", numbers + "["},
                                                              {"groups: masks[", numbers + "["},
                                                              {"groups:", numbers + ":"},
                                                              {"with groups;", "with " + numbers + ";"}};
    std::string message = error.what();
    for (const auto& [field, argument] : names)
        if (const size_t at = message.find(field); at != message.npos)
            return {error.code(), message.replace(at, field.size(), argument)};
    return error;
}

}  // namespace finegemm::python
