// From a GPU's facts to what the planner knows of it. Layer backend: it joins cuda and plan.
#pragma once

#include "cuda/device.h"
#include "plan/plan.h"

namespace finegemm {

/// The known device that the GPU's name contains as a word ("NVIDIA H200" is h200), with the SMs and the shared memory
/// that this one has; for any other name "unknown", with its own memory bandwidth, and L2 adds in proportion.
plan::DeviceSpec spec_of(const cuda::DeviceFacts& facts);

}  // namespace finegemm
