// Which kernel computes a product before a norm, and how K is divided. Layer engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <finegemm/prenorm/prenorm.h>

#include "plan/plan.h"

namespace finegemm {

/// A call of it, without pointers: M, N, K and S; num_sms as the option.
struct PrenormProblem {
    int64_t m, n, k, slices;
    int32_t num_sms = 0;
    bool operator==(const PrenormProblem&) const = default;
};

struct PrenormPlan {
    PrenormConfig config;
    uint32_t cluster;  // CTAs that add their sums
    uint32_t slices;   // that are not zero
    uint32_t ctas;     // of the launch
    double us;         // predicted, on that GPU
};

/// "prenorm_64x24", the kernel's name; its cluster and slices are of the launch.
std::string name_of(const PrenormConfig& config);

/// All plans for it, the fastest first; of equals the one with the fewest parts. There is at least one.
std::vector<PrenormPlan> prenorm_plans(const PrenormProblem& problem, const plan::DeviceSpec& device);

}  // namespace finegemm
