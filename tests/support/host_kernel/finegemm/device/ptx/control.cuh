// Registers, barriers and warps, on the host: tests run a kernel's text itself. Layer tests.
#pragma once

#include <bit>
#include <numeric>

#include "support/host_kernel/machine.h"

#define __device__
#define __shared__ static
#define threadIdx finegemm::host_kernel::thread
#define blockIdx finegemm::host_kernel::block
#define gridDim finegemm::host_kernel::grid
#define __syncthreads finegemm::host_kernel::machine->all_threads
#define __syncwarp() finegemm::host_kernel::machine->show(0)
#define atomicAdd(word, x) __atomic_fetch_add(word, x, __ATOMIC_RELAXED)
#define atomicOr(word, bits) __atomic_fetch_or(word, bits, __ATOMIC_RELAXED)

namespace finegemm::ptx {

using host_kernel::machine;

template <uint32_t>
void setmaxnreg_dec() {
    machine->show(0);
}
template <uint32_t>
void setmaxnreg_inc() {
    machine->show(0);
}
inline void named_barrier_sync(uint32_t id, uint32_t threads) { machine->named_barrier(id, threads, true); }
inline void named_barrier_arrive(uint32_t id, uint32_t threads) { machine->named_barrier(id, threads, false); }

inline uint32_t cluster_rank() { return machine->cta(); }
inline void cluster_arrive() { machine->arrive_at_cluster(); }
inline void cluster_arrive_relaxed() { machine->arrive_at_cluster(); }
inline void cluster_wait() {
    if (machine->ctas() < 2) machine->fail("it waits for a cluster of one, which is a barrier of all its threads");
    machine->wait_for_cluster();
}

inline uint32_t lane() { return threadIdx.x % 32; }
inline uint32_t thread() { return threadIdx.x; }
inline uint32_t value_of(uint32_t x, uint32_t lane) { return machine->show(x)[lane % 32]; }
inline uint32_t broadcast(uint32_t x) { return value_of(x, 0); }
inline uint32_t shuffle_xor(uint32_t x, uint32_t mask) { return machine->show(x)[(threadIdx.x ^ mask) % 32]; }
inline uint32_t value_below(uint32_t x, uint32_t distance) {
    const uint32_t lane = threadIdx.x % 32;
    return machine->show(x)[lane >= distance ? lane - distance : lane];
}
inline uint32_t ballot(bool x) {
    const uint32_t* const shown = machine->show(x);
    uint32_t lanes = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) lanes |= shown[lane] << lane;
    return lanes;
}
inline uint32_t sum_of_lanes(uint32_t x) {
    const uint32_t* const shown = machine->show(x);
    return std::accumulate(shown, shown + 32, 0u);
}
/// All lanes of a warp call it.
inline bool elect_one() {
    machine->show(0);
    return threadIdx.x % 32 == 0;
}

inline uint32_t count_bits(uint32_t x) { return static_cast<uint32_t>(std::popcount(x)); }
inline uint32_t highest_bit(uint32_t x) { return 31 - static_cast<uint32_t>(std::countl_zero(x)); }
inline uint32_t lowest_bit(uint32_t x) { return static_cast<uint32_t>(std::countr_zero(x)); }

inline void grid_launch_dependents() {}
inline void grid_dependency_wait() { machine->wait_for_earlier(); }

}  // namespace finegemm::ptx
