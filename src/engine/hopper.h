// The backend for Hopper GPUs. Layer backend: plan + jit + cuda.
#pragma once

#include <functional>
#include <memory>

#include "engine/backend.h"
#include "jit/kernel_store.h"

namespace finegemm {

/// Throws Error(Unsupported) when there is no driver, no such GPU, or it is not of compute capability 9.0.
std::unique_ptr<Backend> make_hopper_backend(const Options& options, int device_index);

/// A Hopper backend with kernels from elsewhere, so that tests need no compiler. Called by several threads at once.
using KernelProvider = std::function<jit::Binary(const jit::KernelSource&)>;
std::unique_ptr<Backend> make_hopper_backend(const Options& options, int device_index, KernelProvider kernels);

}  // namespace finegemm
