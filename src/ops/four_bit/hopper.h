// A product with weights of 4 bits as a launch. Layer engine.
#pragma once

#include <array>

#include "cuda/driver.h"
#include "ops/four_bit/call.h"
#include "plan/plan.h"

namespace finegemm {

struct FourBitLaunch {
    FourBitConfig config;
    FourBitParams params;
    uint32_t grid;
};

/// All that the launch of a call depends on: calls that agree share it, the tensor map included.
using FourBitCallKey = std::array<int64_t, 23>;
FourBitCallKey call_key(const FourBitCall& call);

/// A launch of the kernel that is expected to be the faster one, or of that for so many rows.
FourBitLaunch launch_of(const FourBitCall& call, const cuda::Driver& driver, const plan::DeviceSpec& device);
FourBitLaunch launch_of(const FourBitCall& call, const cuda::Driver& driver, uint32_t sms, FourBitRows rows);

}  // namespace finegemm
