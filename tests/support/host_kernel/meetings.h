// What threads of the machine for kernels wait for. Layer tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace finegemm::host_kernel {

/// Who meets: lanes of a warp, or threads at a barrier. Complete when `expected` have come.
struct Meeting {
    uint32_t expected = 0, come = 0, round = 0;
};

/// An mbarrier: arrivals and bytes that its phase still waits for.
struct Mbarrier {
    int64_t expected = 0, pending = 0, bytes = 0;
    uint32_t phase = 0;
};

struct Warp {
    Meeting lanes;
    uint32_t values[2][32] = {};  // what lanes show each other, in rounds by turns
    bool waited = false;          // for the kernels before this one
};

/// What lands in memory does so at one of so many times at which something may happen.
inline constexpr uint32_t kLandingTakes = 256;

/// Memory that kernels before this one may still use until it has waited for them.
inline std::vector<std::pair<const void*, size_t>> earlier;

/// Something asynchronous: what it does when its time has come, and of which thread.
struct Pending {
    uint32_t thread;
    std::function<void()> happen;
    bool lands = false;  // in memory: long after shared memory has been read
};

}  // namespace finegemm::host_kernel
