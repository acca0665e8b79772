// An indexer's scores as launches. Layer engine.
#pragma once

#include <array>

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

/// All that the launch of a call depends on: calls that agree share it, tensor maps included. The number of matrices
/// tells prefill from pages; then options, the type of the logits, the stack of queries, and of each matrix four.
using MqaCallKey = std::array<int64_t, 7 + 7 * 4>;
MqaCallKey call_key(const MqaCall& call);
MqaCallKey call_key(const PagedMqaCall& call);

/// The kernel for these.
MqaConfig mqa_config(int64_t heads, int64_t dim, MqaKeys keys, Relu relu);

/// `sms`: of the GPU.
MqaLaunch launch_of(const MqaCall& call, const cuda::Driver& driver, uint32_t sms);
MqaLaunch launch_of(const PagedMqaCall& call, const cuda::Driver& driver, uint32_t sms);
MqaScheduleLaunch launch_of(const PagedMqaScheduleCall& call);

}  // namespace finegemm
