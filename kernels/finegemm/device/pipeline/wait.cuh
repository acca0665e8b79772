// Waiting at an mbarrier. Layer device.
#pragma once

#include <finegemm/device/ptx/mbarrier.cuh>

namespace finegemm::device {

__device__ inline void wait(ptx::SmemAddr barrier, uint32_t parity) {
    while (!ptx::mbarrier_try_wait(barrier, parity)) {}
}

}  // namespace finegemm::device
