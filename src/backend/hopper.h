// The backend for Hopper GPUs. Layer backend: plan + jit + cuda.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace finegemm {

/// Throws Error(Unsupported) when there is no driver, no such GPU, or it is not of compute capability 9.0.
std::unique_ptr<Backend> make_hopper_backend(const Options& options, int device_index);

}  // namespace finegemm
