// Resources of an SM that a compiled kernel takes, read from the compiler's log. Layer jit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace finegemm::jit {

struct Resources {
    int64_t registers = -1;   // per thread; -1: the log does not say
    int64_t spill_bytes = 0;  // stores and loads
    bool serialised = false;  // wgmma instructions wait for one another (warning C7510 and its kin)
};

Resources resources_of(std::string_view log);

}  // namespace finegemm::jit
