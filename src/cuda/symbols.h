// Entry points of a library that was opened at run time. Layer cuda.
#pragma once

#include <dlfcn.h>

namespace finegemm::cuda {

/// Sets `entry` to the function of that name; false when the library has none.
template <typename F>
bool resolve(void* library, F& entry, const char* name) {
    entry = reinterpret_cast<F>(dlsym(library, name));
    return entry != nullptr;
}

}  // namespace finegemm::cuda
