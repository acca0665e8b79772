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
/// Another thread may run first: what another rank has not written yet shows.
inline Words4 load_global_l2_x4_if(bool wanted, const void* from) {
    machine->pause();
    return load_global_x4_if(wanted, from);
}
/// Words that CTAs of a launch count in. CTAs that are not of one cluster run one after the other.
inline uint32_t load_acquire(const uint32_t* from) {
    machine->let_others_run();
    return *from;
}
inline uint32_t add_acq_rel(uint32_t* to, uint32_t x) {
    machine->pause();
    return std::exchange(*to, *to + x);
}
inline void add_release(uint32_t* to, uint32_t x) { add_acq_rel(to, x); }
inline uint32_t add_relaxed(uint32_t* to, uint32_t x) { return add_acq_rel(to, x); }
inline uint32_t load_acquire_cta(SmemAddr from) {
    machine->let_others_run();
    return load_shared_word(from);
}
inline void store_release_cta(SmemAddr to, uint32_t x) {
    machine->pause();
    store_shared_word(to, x);
}
inline void fence_proxy_async() { machine->fence(); }

inline uint64_t nanoseconds() { return host_kernel::nanoseconds += 1000; }

}  // namespace finegemm::ptx
