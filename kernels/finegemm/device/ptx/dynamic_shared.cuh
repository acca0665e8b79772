// The dynamic shared memory of a CTA. Layer device.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

/// Where it begins, rounded up to a multiple of 1024, which swizzled tiles need.
__device__ inline SmemAddr dynamic_shared() {
    extern __shared__ uint8_t bytes[];
    return {align_up(smem_address(bytes).bits, 1024)};
}

}  // namespace finegemm::ptx
