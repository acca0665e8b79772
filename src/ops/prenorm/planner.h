// Which kernel computes a product before a norm, and how K is cut. Layer engine.
#pragma once

#include <cstdint>
#include <vector>

#include <finegemm/prenorm/prenorm.h>

#include "plan/plan.h"

namespace finegemm {

/// A call of it, without pointers. M is at least 1; num_sms as the option.
struct PrenormProblem {
    int64_t m, n, k, slices;
    int32_t num_sms = 0;
};

struct PrenormPlan {
    PrenormKernel kernel{};
    uint32_t slices = 1;  // that are not zero
    uint32_t clusters = 1;
    double us = 0;  // predicted

    uint32_t ctas() const { return clusters * kernel.cluster(); }
    /// Parts of K, each a CTA's.
    uint32_t parts() const { return slices * kernel.cluster(); }
};

/// The fastest of all, by prediction; of equals the one with the fewest parts.
PrenormPlan plan_of(const PrenormProblem& problem, const plan::DeviceSpec& device);

/// All of them, the fastest first: it is the plan.
std::vector<PrenormPlan> prenorm_plans(const PrenormProblem& problem, const plan::DeviceSpec& device);

}  // namespace finegemm
