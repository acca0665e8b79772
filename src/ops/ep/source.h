// The sources of the kernels for rows between ranks. Layer jit.
#pragma once

#include <finegemm/routing/peers.h>
#include <finegemm/routing/slots.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

KernelSource source_of(const SlotsConfig& config);
KernelSource source_of(const PeersConfig& config);

}  // namespace finegemm::jit
