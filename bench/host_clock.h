// Timing of short calls on the host, in batches. Layer bench.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

namespace finegemm {

/// Nanoseconds that one of `calls` calls takes; they get their number.
inline double time_batch(int calls, const std::function<void(int)>& call) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call(i);
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls;
}

/// The value that a `share` of x, from 0 to 1, lies below.
inline double quantile(std::vector<double> x, double share) {
    const auto at = static_cast<ptrdiff_t>(share * static_cast<double>(x.size() - 1) + 0.5);
    std::nth_element(x.begin(), x.begin() + at, x.end());
    return x[static_cast<size_t>(at)];
}

inline double median(std::vector<double> x) { return quantile(std::move(x), 0.5); }

}  // namespace finegemm
