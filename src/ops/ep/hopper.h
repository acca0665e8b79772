// Where rows are in messages, and their ways through memory of ranks, as launches. Layer engine.
#pragma once

#include "cuda/driver.h"
#include "ops/ep/call.h"

namespace finegemm {

struct SlotsLaunch {
    SlotsConfig config;
    SlotsParams params;
    uint32_t grid;
};
SlotsLaunch launch_of(const SlotsCall& call);

struct PullLaunch {
    PeersConfig config;
    PullParams params;
    uint32_t grid;
};
PullLaunch launch_of(const PullCall& call, const cuda::Driver& driver, uint32_t sms);

struct PushLaunch {
    PeersConfig config;
    PushParams params;
    uint32_t grid;
};
PushLaunch launch_of(const PushCall& call, const cuda::Driver& driver, uint32_t sms);

}  // namespace finegemm
