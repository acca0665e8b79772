// A quantisation as a launch. Layer engine.
#pragma once

#include <finegemm/quantize/quantize.h>

#include "ops/quantize/call.h"

namespace finegemm {

struct QuantizeLaunch {
    QuantizeConfig config;
    QuantizeParams params;
    uint32_t grid;
};
QuantizeLaunch launch_of(const QuantizeCall& call);

}  // namespace finegemm
