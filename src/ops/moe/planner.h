// Launches of a layer of experts on a GPU, and what they take. Layer engine.
#pragma once

#include <string>
#include <vector>

#include "ops/moe/call.h"
#include "plan/plan.h"

namespace finegemm {

struct MoeLaunch {
    const char* call;    // by its function's name, or those of two
    std::string kernel;  // as logs have it
    std::string line;    // of a product, as `finegemm explain` takes it; else empty
    double us, bytes;    // by prediction
};

struct MoePlan {
    bool fused = true;
    double fused_us = 0, apart_us = 0;  // of product and activation in one launch and in two, at full clocks; 0: not to
                                        // be had
    std::vector<MoeLaunch> launches;
    double us() const {
        double sum = 0;
        for (const MoeLaunch& launch : launches) sum += launch.us;
        return sum;
    }
};

/// `user`: a table that was loaded for this device, or null.
MoePlan plan_of(const MoeShape& shape, const plan::DeviceSpec& device, const plan::PlanTable* user = nullptr);

/// Whether the product and its activation are expected to take no longer in one launch than in two.
bool is_fused_faster(const MoeShape& shape, const plan::DeviceSpec& device, const plan::PlanTable* user = nullptr);

}  // namespace finegemm
