// How much longer code may take in this build than in the one that people run. Layer tests.
#pragma once

#include <cstdint>

namespace finegemm::test {

/// A factor for bounds on the times of code that reads much memory: sanitizers check each access.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr double kSlowdown = 10;
#else
inline constexpr double kSlowdown = 1;
#endif

/// How many of `count` random problems a test tries, where each takes long: sanitizers see as much in a fifth of them.
constexpr uint32_t tried(uint32_t count) { return kSlowdown > 1 ? count / 5 : count; }

}  // namespace finegemm::test
