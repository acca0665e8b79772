// What belongs into the pack: every kernel that a call can choose. Layer backend: it joins plan and jit.
#pragma once

#include <vector>

#include "jit/kernel_store.h"

namespace finegemm {

std::vector<jit::KernelSource> pack_contents();

}  // namespace finegemm
