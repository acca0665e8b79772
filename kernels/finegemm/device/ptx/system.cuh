// What GPUs of a host, or CTAs of a launch, tell each other in memory. Layer device. One instruction per function.
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

/// Orders what this thread has written or seen, for other GPUs as well. PTX ISA, fence.
__device__ inline void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

/// 16 bytes, 0 where they are not wanted, from L2: what another GPU has written while this kernel ran.
__device__ inline Words4 load_global_l2_x4_if(bool wanted, const void* from) {
    Words4 v;
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@p ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];\n}\n"
        : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
        : "l"(from), "r"(static_cast<uint32_t>(wanted))
        : "memory");
    return v;
}

/// A word that other CTAs of this GPU count in: what they had written before can be read then.
__device__ inline uint32_t load_acquire(const uint32_t* from) {
    uint32_t x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}
/// Adds to such a word, behind all that this thread has written or seen, and may read what others had before. PTX ISA,
/// atom.
__device__ inline uint32_t add_acq_rel(uint32_t* to, uint32_t x) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(x) : "memory");
    return before;
}
/// Likewise, without a look at what was there.
__device__ inline void add_release(uint32_t* to, uint32_t x) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
/// Adds, and orders nothing.
__device__ inline uint32_t add_relaxed(uint32_t* to, uint32_t x) {
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(x) : "memory");
    return before;
}

/// A word of shared memory that one thread of the CTA writes.
__device__ inline uint32_t load_acquire_cta(SmemAddr from) {
    uint32_t x;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(x) : "r"(from.bits) : "memory");
    return x;
}
__device__ inline void store_release_cta(SmemAddr to, uint32_t x) {
    asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(to.bits), "r"(x) : "memory");
}

/// Orders ordinary accesses of this thread and those of TMA, in any memory. PTX ISA, fence.proxy.
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

/// Time of the GPU.
__device__ inline uint64_t nanoseconds() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

}  // namespace finegemm::ptx
