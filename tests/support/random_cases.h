// How many random cases a test takes. Layer tests.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace finegemm::test {

/// `few`, or as many as FINEGEMM_RANDOM_CASES says, which long tests set. Half of the few where each takes eight times
/// as long: kernels on the host's threads, sanitized.
inline int64_t random_cases(int64_t few) {
    const char* many = std::getenv("FINEGEMM_RANDOM_CASES");
    if (many) return std::atoll(many);
#ifdef __SANITIZE_ADDRESS__
    return (few + 1) / 2;
#else
    return few;
#endif
}

}  // namespace finegemm::test
