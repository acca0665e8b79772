// Options and a backend for tests that use the CPU alone. Layer tests.
#pragma once

#include "engine/cpu.h"

namespace finegemm::test {

/// A driver that is nowhere, also on a machine with a GPU.
inline constexpr char kNoDriver[] = "/nowhere/libcuda.so.1";

inline Options cpu_options(int threads = 2) {
    Options o;
    o.cpu_threads = threads;
    o.driver_path = kNoDriver;
    return o;
}

inline std::unique_ptr<Backend> cpu_backend(int threads = 2) { return make_cpu_backend(cpu_options(threads)); }

}  // namespace finegemm::test
