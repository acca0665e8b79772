// Where rows are in messages, as a launch. Layer engine.
#include "ops/ep/hopper.h"

namespace finegemm {

SlotsLaunch launch_of(const SlotsCall& call) {
    constexpr SlotsConfig kConfig;
    constexpr uint32_t kMaxGrid = 512;  // it walks over its tasks, which are short
    return {kConfig, call.params, min(ceil_div(call.params.tasks(), kConfig.threads()), kMaxGrid)};
}

}  // namespace finegemm
