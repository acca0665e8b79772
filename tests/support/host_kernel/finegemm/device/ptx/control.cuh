// What a kernel's text asks of a GPU, on the host: tests run the text itself, a CTA of threads at a time. Layer tests.
#pragma once

#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __shared__ static

namespace finegemm::host_kernel {

struct Index {
    uint32_t x = 0;
};
inline thread_local Index thread;
inline Index block, grid;

/// The CTA that runs.
struct Cta {
    explicit Cta(uint32_t threads) : barrier(threads), lanes(threads) {}
    std::barrier<> barrier;
    std::vector<uint32_t> lanes;  // what each thread shows the others of its warp
};
inline Cta* cta = nullptr;

/// Runs `kernel` for all threads of a CTA, for one CTA after the other.
template <typename Kernel>
void launch(uint32_t ctas, uint32_t threads, const Kernel& kernel) {
    Cta running(threads);
    cta = &running;
    grid.x = ctas;
    std::vector<std::thread> workers;
    for (uint32_t t = 0; t < threads; ++t)
        workers.emplace_back([&, t] {
            thread.x = t;
            for (uint32_t b = 0; b < ctas; ++b) {
                if (t == 0) block.x = b;
                running.barrier.arrive_and_wait();
                kernel();
                running.barrier.arrive_and_wait();
            }
        });
    for (std::thread& worker : workers) worker.join();
}

inline uint32_t atomic_or(uint32_t* word, uint32_t bits) { return __atomic_fetch_or(word, bits, __ATOMIC_RELAXED); }
inline void synchronise() { cta->barrier.arrive_and_wait(); }

}  // namespace finegemm::host_kernel

#define threadIdx finegemm::host_kernel::thread
#define blockIdx finegemm::host_kernel::block
#define gridDim finegemm::host_kernel::grid
#define __syncthreads finegemm::host_kernel::synchronise
#define atomicOr finegemm::host_kernel::atomic_or

namespace finegemm::ptx {

/// All threads of the CTA call it, which on a GPU those of a warp do.
inline uint32_t value_below(uint32_t x, uint32_t distance) {
    using namespace host_kernel;
    cta->lanes[thread.x] = x;
    synchronise();
    const uint32_t lane = thread.x % 32, from = lane >= distance ? thread.x - distance : thread.x;
    const uint32_t value = cta->lanes[from];
    synchronise();
    return value;
}

/// Likewise.
inline uint32_t ballot(bool x) {
    using namespace host_kernel;
    cta->lanes[thread.x] = x;
    synchronise();
    uint32_t lanes = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) lanes |= cta->lanes[thread.x / 32 * 32 + lane] << lane;
    synchronise();
    return lanes;
}
inline uint32_t count_bits(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }

}  // namespace finegemm::ptx
