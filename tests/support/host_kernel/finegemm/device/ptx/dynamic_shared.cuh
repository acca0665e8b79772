// The dynamic shared memory, on the host. Layer tests.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

inline SmemAddr dynamic_shared() { return {0}; }

}  // namespace finegemm::ptx
