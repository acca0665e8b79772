// What GPUs of a host tell each other in memory. Layer device. One instruction per function.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// A word that another GPU writes: what that had written before can be read then. PTX ISA, ld.acquire.
__device__ inline uint64_t load_acquire_system(const uint64_t* from) {
    uint64_t x;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
    return x;
}

/// A word for another GPU, behind all that this thread has written or seen. PTX ISA, st.release.
__device__ inline void store_release_system(uint64_t* to, uint64_t x) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}

/// Sets bits of a word.
__device__ inline void set_bits_system(uint64_t* word, uint64_t bits) {
    asm volatile("red.relaxed.sys.global.or.b64 [%0], %1;" ::"l"(word), "l"(bits) : "memory");
}

/// Orders what this thread has written or seen, for other GPUs as well; of two threads that write, pass it, and look at
/// what the other one writes, one sees that at least. PTX ISA, fence.sc.
__device__ inline void fence_system() { asm volatile("fence.sc.sys;" ::: "memory"); }

/// Time of the GPU.
__device__ inline uint64_t nanoseconds() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

}  // namespace finegemm::ptx
