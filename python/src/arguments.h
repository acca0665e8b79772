// Python's values as C++'s. What the package hands over is of the right number and mostly of the right type.
// Layer: front end.
#pragma once

#include "object.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <finegemm/context.h>
#include <finegemm/error.h>
#include <finegemm/tensor.h>

namespace finegemm::python {

// Conversions that throw PythonError with a TypeError, or Error(InvalidArgument), that has `name`.

/// Good while `x` lives.
std::string_view text(const char* name, PyObject* x);
int64_t integer(const char* name, PyObject* x);
int32_t integer32(const char* name, PyObject* x);
/// What else Python has a truth for is refused: "no" would be true.
bool boolean(const char* name, PyObject* x);
/// A bool, or nothing for None.
std::optional<bool> choice(const char* name, PyObject* x);

// Names of enumerators; Error(InvalidArgument) for any other name.

Numerics numerics_named(std::string_view name);
Compiler compiler_named(std::string_view name);
/// The type that an `out_dtype` names.
DType output_named(std::string_view name);

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
