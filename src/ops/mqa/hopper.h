// An indexer's scores as launches. Layer engine.
#pragma once

#include <finegemm/mqa/mqa.h>
#include <finegemm/mqa/schedule.h>

#include "cuda/driver.h"
#include "ops/mqa/call.h"

namespace finegemm {

struct MqaLaunch {
    MqaConfig config;
    MqaParams params;
    uint32_t grid;
};
struct MqaScheduleLaunch {
    MqaScheduleConfig config;
    MqaScheduleParams params;
    uint32_t grid;
};

/// The kernel for these.
MqaConfig mqa_config(int64_t heads, int64_t dim, MqaKeys keys, Relu relu);

/// `sms`: of the GPU.
MqaLaunch launch_of(const MqaCall& call, const cuda::Driver& driver, uint32_t sms);
MqaLaunch launch_of(const PagedMqaCall& call, const cuda::Driver& driver, uint32_t sms);
MqaScheduleLaunch launch_of(const PagedMqaScheduleCall& call);

}  // namespace finegemm
