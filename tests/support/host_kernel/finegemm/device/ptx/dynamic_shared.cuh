// The dynamic shared memory, on the host. Layer tests.
#pragma once

#include <finegemm/device/ptx/memory.cuh>

namespace finegemm::ptx {

inline SmemAddr dynamic_shared() { return {0}; }
template <typename T>
T& dynamic_shared_object() {
    return *reinterpret_cast<T*>(host_kernel::shared[machine->cta()]);
}
template <typename T>
T& dynamic_shared_object_aligned() {
    return dynamic_shared_object<T>();
}

}  // namespace finegemm::ptx
