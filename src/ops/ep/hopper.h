// Where rows are in messages, as a launch. Layer engine.
#pragma once

#include "ops/ep/call.h"

namespace finegemm {

struct SlotsLaunch {
    SlotsConfig config;
    SlotsParams params;
    uint32_t grid;
};
SlotsLaunch launch_of(const SlotsCall& call);

}  // namespace finegemm
