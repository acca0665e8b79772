// What GPUs of a host tell each other in memory, on the host: ranks are CTAs of one run. Layer tests.
#pragma once

#include <finegemm/device/ptx/convert.cuh>

namespace finegemm::host_kernel {
inline uint64_t nanoseconds = 0;  // which pass while somebody looks at the time
}

namespace finegemm::ptx {

/// Others run first: whoever polls waits for them.
inline uint64_t load_acquire_system(const uint64_t* from) {
    machine->let_others_run();
    return load_as<uint64_t>(from);
}
inline void store_release_system(uint64_t* to, uint64_t x) {
    machine->pause();
    store_as(to, x);
}
inline void set_bits_system(uint64_t* word, uint64_t bits) { *word |= bits; }
inline void fence_system() {}
inline uint64_t nanoseconds() { return host_kernel::nanoseconds += 1000; }

}  // namespace finegemm::ptx
