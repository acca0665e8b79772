// The dynamic shared memory of a CTA. Layer device.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// Where it begins, rounded up to a multiple of 1024, which swizzled tiles need.
__device__ inline SmemAddr dynamic_shared() {
    extern __shared__ uint8_t bytes[];
    return {align_up(smem_address(bytes).bits, 1024)};
}

/// It as an object, which it has room for.
template <typename T>
__device__ inline T& dynamic_shared_object() {
    static_assert(alignof(T) <= 16);
    extern __shared__ uint8_t bytes[];
    return *reinterpret_cast<T*>(bytes);
}

/// Likewise, where alignments of up to 1024 bytes begin.
template <typename T>
__device__ inline T& dynamic_shared_object_aligned() {
    extern __shared__ uint8_t bytes[];
    return *reinterpret_cast<T*>(bytes + (dynamic_shared().bits - smem_address(bytes).bits));
}

}  // namespace finegemm::ptx
