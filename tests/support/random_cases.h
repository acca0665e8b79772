// How many random cases a test takes. Layer tests.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace finegemm::test {

/// `few`, or as many as FINEGEMM_RANDOM_CASES says, which long tests set.
inline int64_t random_cases(int64_t few) {
    const char* many = std::getenv("FINEGEMM_RANDOM_CASES");
    return many ? std::atoll(many) : few;
}

}  // namespace finegemm::test
