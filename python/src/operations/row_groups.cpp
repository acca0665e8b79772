// Groups of rows that may be left out. Layer: front end.
#include "operations/row_groups.h"

#include <utility>

#include <finegemm/error.h>
#include <fmt/format.h>

namespace finegemm::python {

const char* take_groups(Tensors& tensors, Arguments& given, Groups& groups) {
    const char* name = nullptr;
    for (const auto& [argument, form] : {std::pair{"offsets", GroupForm::Offsets},
                                         {"m_indices", GroupForm::Indices},
                                         {"prefix_sums", GroupForm::PrefixSums},
                                         {"masked_m", GroupForm::Masked}}) {
        PyObject* const x = given.optional(argument);
        if (x == Py_None) continue;
        if (name)
            throw Error(
                Errc::InvalidArgument,
                fmt::format("{}: is given, but so is {}; rows belong to groups by one of them", argument, name));
        name = argument;
        const Numbers numbers = tensors.numbers(argument, x);
        groups = {.form = form, .data = numbers.data, .size = numbers.size, .device = numbers.device};
    }
    given.take("alignment", groups.alignment);
    return name;
}

}  // namespace finegemm::python
