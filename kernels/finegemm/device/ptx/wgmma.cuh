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
__device__ inline void pin(int32_t& x) { asm volatile("" : "+r"(x)::"memory"); }

/// The types of A and B of one byte as PTX calls them.
#ifndef FG_WGMMA_FP8
#define FG_WGMMA_FP8 "e4m3.e4m3"
#endif
/// What differs between a k-block of FP8 and one of integers: accumulators, types, and the signs that floats may
/// change.
#ifdef FG_WGMMA_I8
#define FG_WGMMA_SUM int32_t
#define FG_WGMMA_OUT "=r"
#define FG_WGMMA_BYTES "s32.s8.s8"
#define FG_WGMMA_SIGNS ""
#else
#define FG_WGMMA_SUM float
#define FG_WGMMA_OUT "=f"
#define FG_WGMMA_BYTES "f32." FG_WGMMA_FP8
#define FG_WGMMA_SIGNS ", 1, 1"
#endif
/// The products of each 32 of a k-block, in registers one behind the other; there are functions for some widths.
template <uint32_t Registers>
__device__ void wgmma_k32_each(float (&d)[Registers], uint64_t a, uint64_t b);
#include <finegemm/device/ptx/wgmma.inl>
#ifdef FG_WGMMA_DECODED
#include <finegemm/device/ptx/wgmma_decoded.inl>
#endif

}  // namespace finegemm::ptx
