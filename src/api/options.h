// Reading and checking options. Layer api.
#pragma once

#include <functional>

#include <finegemm/context.h>

namespace finegemm {

/// Where variables come from: the value, or null when there is none.
using Variables = std::function<const char*(const char* name)>;

Options options_from(const Variables& variables);

/// Options may also be set by hand. Throws Error(InvalidArgument) for a value out of range.
void check_options(const Options& options);

}  // namespace finegemm
