// What a kernel tells the one behind it while both run. Layer device. One instruction per function.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// Until all groups of this thread have been written to global memory. PTX ISA, cp.async.bulk.wait_group.
__device__ inline void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Adds to a word, behind all that this thread has written or seen. PTX ISA, red.release.
__device__ inline void add_release(uint32_t* to, uint32_t x) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

/// A word: what had been written before it can be read then. PTX ISA, ld.acquire.
__device__ inline uint32_t load_acquire(const void* from) {
    uint32_t x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}

/// Lets others go on for about so long. PTX ISA, nanosleep.
__device__ inline void pause(uint32_t nanoseconds) { asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds) : "memory"); }

}  // namespace finegemm::ptx
