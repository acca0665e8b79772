// Reading options. Layer api.
#pragma once

#include <functional>
#include <string>

#include <finegemm/context.h>

namespace finegemm {

/// Where variables come from: the value, or null when there is none.
using Variables = std::function<const char*(const char* name)>;

Options options_from(const Variables& variables);

}  // namespace finegemm
