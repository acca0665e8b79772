// SwiGLU with quantisation as a launch. Layer engine.
#pragma once

#include "cuda/driver.h"
#include "ops/swiglu/call.h"

namespace finegemm {

struct SwigluLaunch {
    SwigluConfig config;
    SwigluParams params;
    uint32_t grid;
};
SwigluLaunch launch_of(const SwigluCall& call, uint32_t sms);
inline SwigluLaunch launch_of(const SwigluCall& call, const cuda::Driver&, uint32_t sms) {
    return launch_of(call, sms);
}

}  // namespace finegemm
