// The product before a norm as a launch. Layer engine.
#pragma once

#include <array>

#include "cuda/driver.h"
#include "ops/prenorm/call.h"
#include "ops/prenorm/planner.h"

namespace finegemm {

struct PrenormLaunch {
    PrenormKernel config;
    PrenormParams params;
    uint32_t grid;
};

/// All that the launch of a call depends on: calls that agree share it, tensor maps included.
using PrenormCallKey = std::array<int64_t, 14>;
PrenormCallKey call_key(const PrenormCall& call);

PrenormLaunch launch_of(const PrenormCall& call, const cuda::Driver& driver, const plan::DeviceSpec& device);
/// Takes a plan that is given.
PrenormLaunch launch_of(const PrenormCall& call, const cuda::Driver& driver, const PrenormPlan& plan);

}  // namespace finegemm
