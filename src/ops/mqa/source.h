// The sources of the kernels for an indexer's scores. Layer jit.
#pragma once

#include <span>

#include <finegemm/mqa/mqa.h>
#include <finegemm/mqa/schedule.h>

#include "jit/kernel_store.h"

namespace finegemm::jit {

/// All there are of those that compute logits.
std::span<const MqaConfig> mqa_configs();

KernelSource source_of(const MqaConfig& config);
KernelSource source_of(const MqaScheduleConfig& config);

}  // namespace finegemm::jit
