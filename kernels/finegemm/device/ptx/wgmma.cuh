// Warpgroup matrix multiply-accumulate. Layer device. One instruction per function.
// PTX ISA, "Asynchronous warpgroup level matrix instructions".
#pragma once

#include <finegemm/core/wgmma_desc.h>

namespace finegemm::ptx {

/// Orders earlier register and shared-memory accesses before the wgmma instructions that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <uint32_t Pending>
__device__ inline void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Tells the compiler that `x` changes here: it must not move reads of an accumulator above the wait.
__device__ inline void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ inline void pin(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }

/// The types of A and B of one byte as PTX calls them.
#ifndef FG_WGMMA_FP8
#define FG_WGMMA_FP8 "e4m3.e4m3"
#endif
#include <finegemm/device/ptx/wgmma.inl>

}  // namespace finegemm::ptx
