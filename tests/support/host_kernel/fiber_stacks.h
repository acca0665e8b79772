// What the address sanitizer is told when fibers alternate; nothing in other builds. Layer tests.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace finegemm::host_kernel {

struct Stack {
    const void* bottom = nullptr;
    size_t size = 0;
    void* fake = nullptr;  // where the sanitizer keeps variables that may be used after their function has returned

    /// Before the switch from this stack to `other`; `ends`: nobody will come back.
    void leave_for([[maybe_unused]] const Stack& other, [[maybe_unused]] bool ends = false) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(ends ? nullptr : &fake, other.bottom, other.size);
#endif
    }
    /// Behind the switch to this stack from `other`, whose place it learns.
    void come_from([[maybe_unused]] Stack& other) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(fake, &other.bottom, &other.size);
#endif
    }
    /// Before a function begins where another one has not returned.
    void clear() const {
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(bottom, size);
#endif
    }
};

}  // namespace finegemm::host_kernel
