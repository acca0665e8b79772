// The source of the kernel for messages between ranks. Layer jit.
#pragma once

#include <finegemm/routing/slots.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

KernelSource source_of(const SlotsConfig& config);

}  // namespace finegemm::jit
