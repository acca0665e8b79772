// What a kernel tells the one behind it while both run, on the host: a test is the other one. Layer tests.
#pragma once

#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::host_kernel {
inline std::function<void()> before_polling;                // what the kernel before may do meanwhile
inline std::function<void(const uint32_t* word)> reported;  // to a word that has been added to
}  // namespace finegemm::host_kernel

namespace finegemm::ptx {

inline void bulk_wait() {
    while (machine->has_pending(machine->current())) machine->let_others_run();
}
inline void add_release(uint32_t* to, uint32_t x) {
    machine->pause();
    *to += x;
    if (host_kernel::reported) host_kernel::reported(to);
}
inline uint32_t load_acquire(const void* from) {
    if (host_kernel::before_polling) host_kernel::before_polling();
    return load_as<uint32_t>(from);
}
inline void pause(uint32_t) { machine->let_others_run(); }

}  // namespace finegemm::ptx
