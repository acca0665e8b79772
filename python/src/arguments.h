// Python's values as C++'s.
// Layer: front end.
#pragma once

#include "object.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <finegemm/context.h>
#include <finegemm/error.h>
#include <finegemm/mqa.h>
#include <finegemm/tensor.h>

namespace finegemm::python {

// Conversions that throw PythonError with a TypeError, or Error(InvalidArgument), that has `name`.

/// Good while `x` lives.
std::string_view text(const char* name, PyObject* x);
int64_t integer(const char* name, PyObject* x);
int32_t integer32(const char* name, PyObject* x);
float real(const char* name, PyObject* x);
/// What else Python has a truth for is refused: "no" would be true.
bool boolean(const char* name, PyObject* x);

// Names of enumerators; Error(InvalidArgument) for any other name.

Numerics numerics_named(std::string_view name);
Compiler compiler_named(std::string_view name);
LogitsForm form_named(std::string_view name);
Relu relu_named(std::string_view name);
/// The type that an `out_dtype` names.
/// The type that arrays call `name`.
DType type_named(std::string_view argument, std::string_view name);

// Conversions by the type of what takes the value. None is nothing where that can be.

inline void take(const char* name, PyObject* x, bool& to) { to = boolean(name, x); }
inline void take(const char* name, PyObject* x, int32_t& to) { to = integer32(name, x); }
inline void take(const char* name, PyObject* x, int64_t& to) { to = integer(name, x); }
inline void take(const char* name, PyObject* x, float& to) { to = real(name, x); }
inline void take(const char* name, PyObject* x, Numerics& to) { to = numerics_named(text(name, x)); }
inline void take(const char* name, PyObject* x, Compiler& to) { to = compiler_named(text(name, x)); }
inline void take(const char* name, PyObject* x, LogitsForm& to) { to = form_named(text(name, x)); }
inline void take(const char* name, PyObject* x, Relu& to) { to = relu_named(text(name, x)); }
inline void take(const char* name, PyObject* x, DType& to) { to = type_named(name, text(name, x)); }
inline void take(const char* name, PyObject* x, std::string& to) { to = x == Py_None ? "" : text(name, x); }
template <typename T>
void take(const char* name, PyObject* x, std::optional<T>& to) {
    if (x != Py_None) take(name, x, to.emplace());
}

/// The arguments that a call was given, by name. Borrowed: good while the call lasts.
class Arguments {
public:
    /// `places`: names of the arguments that may be given by their place. `names`: a set of all, or None where those of
    /// the function are meant. `args`: a tuple of those given by place, `keywords`: a dict of the others. Throws
    /// PythonError where they do not fit.
    Arguments(std::span<const std::string_view> places, PyObject* names, PyObject* args, PyObject* keywords);
    /// All by name.
    explicit Arguments(PyObject* keywords);

    /// Null where it is not given.
    PyObject* find(std::string_view name) {
        for (Argument& x : std::span(given_.data(), count_))
            if (x.name == name) {
                left_ -= !x.taken;
                x.taken = true;
                return x.value;
            }
        return nullptr;
    }
    /// Likewise, for a look before the argument is taken.
    PyObject* peek(std::string_view name) const {
        for (const Argument& x : std::span(given_.data(), count_))
            if (x.name == name) return x.value;
        return nullptr;
    }
    /// For names that nothing has asked for before: once all arguments have been taken, none is looked at.
    PyObject* rest(std::string_view name) { return left_ == 0 ? nullptr : find(name); }
    /// None where it is not given.
    PyObject* optional(std::string_view name) {
        PyObject* x = find(name);
        return x ? x : Py_None;
    }
    /// Throws PythonError where it is not given.
    PyObject* required(std::string_view name) {
        PyObject* x = find(name);
        if (!x) refuse_missing(name);
        return x;
    }
    /// Leaves `to` as it is where it is not given.
    template <typename T>
    void take(const char* name, T& to) {
        if (PyObject* x = find(name)) python::take(name, x, to);
    }
    /// Likewise, as in `rest`.
    template <typename T>
    void take_rest(const char* name, T& to) {
        if (PyObject* x = rest(name)) python::take(name, x, to);
    }
    /// Throws Error(Internal) for an argument that nothing asked for.
    void check_all_taken() const;

private:
    void add(std::string_view name, PyObject* value);
    [[noreturn]] static void refuse_missing(std::string_view name);

    struct Argument {
        std::string_view name;
        PyObject* value;
        bool taken;
    };
    static constexpr size_t kMost = 32;
    std::array<Argument, kMost> given_;
    size_t count_ = 0, left_ = 0;  // left: not taken
};

/// An error about fields of `Groups` as one about Python's arguments. `numbers`: the one that stands for `groups`.
Error renamed(const Error& error, const std::string& numbers);

/// What `call` returns; its errors are renamed.
template <typename Call>
auto with_names_of_python(const char* numbers, const Call& call) {
    try {
        return call();
    } catch (const Error& error) {
        throw renamed(error, numbers);
    }
}

}  // namespace finegemm::python
