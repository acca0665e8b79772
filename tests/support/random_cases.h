// How many random cases a test takes. Layer tests.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "support/slowdown.h"

namespace finegemm::test {

/// `few`, half of them in sanitized code, or as many as FINEGEMM_RANDOM_CASES says, which long tests set.
inline int64_t random_cases(int64_t few) {
    const char* many = std::getenv("FINEGEMM_RANDOM_CASES");
    if (many) return std::atoll(many);
    return kSlowdown > 1 ? (few + 1) / 2 : few;
}

}  // namespace finegemm::test
