// The backend for CPUs: runs everywhere, and is the oracle for the others. Layer engine.
#pragma once

#include <memory>

#include "engine/backend.h"

namespace finegemm {

std::unique_ptr<Backend> make_cpu_backend(const Options& options);

}  // namespace finegemm
