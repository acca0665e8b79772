// How much longer code may take in this build than in the one that people run. Layer tests.
#pragma once

namespace finegemm::test {

/// A factor for bounds on times. Under sanitizers each access to memory is checked: with ThreadSanitizer a hit of the
/// disk cache takes 14 to 18 times as long, a kernel of the pack 45 times, and a busy machine doubles that.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr double kSlowdown = 20;
#else
inline constexpr double kSlowdown = 1;
#endif

}  // namespace finegemm::test
