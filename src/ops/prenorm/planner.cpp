// Which kernel computes a product before a norm, and how K is cut. Layer engine.
#include "ops/prenorm/planner.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace finegemm {

namespace {

/// Times in microseconds, bytes that one takes: fitted to bench/results/prenorm_plans_h200.json, so that what is chosen
/// loses least.
constexpr double kLaunch = 2.38;                        // and the first stage's latency
constexpr double kMisses = 1.94, kMissBytes = 8e6;      // more of it where as much of A as that, or more, is new to L2
constexpr double kTile[] = {1.01, 1.32, 1.18, 1.39};    // from the last stage of a part to its sums in memory
constexpr double kLargeTile = 0.21;                     // more of it with 128 rows
constexpr double kStage[] = {0.35, 0.57};               // of 64 and 128 rows, at least: latencies and instructions
constexpr double kBytesOfSm = 8.7e4, kBytesOfL2 = 9e6;  // that reach an SM from memory, and all SMs from L2
constexpr double kHidden = 0.77;                        // of the shorter one of latency and memory, beside the other

constexpr uint32_t kMostSlices = 64;      // that are not zero: more parts than SMs have no use
constexpr uint64_t kMostItems = 1 << 27;  // 8 CTAs of each have numbers

// Clusters of 1, 2, 4 and 8 CTAs, one on an SM, that an H200 with 132 SMs holds at once, as
// cuOccupancyMaxActiveClusters says: a cluster lies within a GPC, and parts of GPCs are left over.
constexpr uint32_t kClusters[] = {132, 66, 30, 15}, kSmsCounted = 132;
static_assert(std::size(kClusters) == kPrenormMostClusterLog2 + 1);

uint32_t clusters_at_once(const PrenormProblem& p, const plan::DeviceSpec& d, uint32_t log2) {
    const uint32_t fit = max(kClusters[log2] * d.sms / kSmsCounted, 1);
    return p.num_sms > 0 ? std::min(fit, static_cast<uint32_t>(p.num_sms) >> log2) : fit;
}

double predicted(const PrenormProblem& p, const plan::DeviceSpec& d, const PrenormPlan& plan, double items) {
    const PrenormKernel& kernel = plan.kernel;
    const uint32_t rows = kernel.config.rows, stage_cols = kernel.config.blocks() * kPrenormBlock;
    const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
    const double a_bytes = m * k * 2, b_bytes = n * k * 4;
    const double tiles = items / plan.slices, at_once = plan.clusters;
    const double memory = (a_bytes + b_bytes + static_cast<double>(p.slices) * m * (n + 1) * 4) / d.hbm_bytes_per_us;
    const double l2 = (a_bytes + tiles * b_bytes) / kBytesOfL2;
    const double stages = std::ceil(std::ceil(k / stage_cols) / plan.parts());
    const double of_stage = (std::min<double>(rows, m) * 2 + n * 4) * stage_cols / kBytesOfSm;
    const double of_item =
        stages * std::max(of_stage, kStage[rows / 128]) + kTile[kernel.cluster_log2] + (rows == 128 ? kLargeTile : 0);
    const double chain = std::ceil(items / at_once) * of_item, bytes = std::max(memory, l2);
    return kLaunch + kMisses * std::min(1.0, a_bytes / kMissBytes) + std::max(chain, bytes) +
           (1 - kHidden) * std::min(chain, bytes);
}

/// Calls visit(plan) for each. One with 64 rows, a slice and no cluster is always among them.
template <typename Visit>
void visit_plans(const PrenormProblem& p, const plan::DeviceSpec& d, const Visit& visit) {
    const uint32_t cols = p.n > 24 ? 32 : 24;
    const auto most = static_cast<uint32_t>(std::min<int64_t>(p.slices, kMostSlices));
    for (uint32_t rows = 64; rows <= 128 && (rows == 64 || p.m > rows / 2); rows *= 2) {
        const uint64_t stages =
            ceil_div(static_cast<uint32_t>(p.k / kPrenormBlock), PrenormConfig{rows, cols}.blocks());
        for (uint32_t log2 = 0; log2 <= kPrenormMostClusterLog2; ++log2) {
            const uint32_t at_once = clusters_at_once(p, d, log2);
            for (uint32_t slices = 1; slices <= most; ++slices) {
                const uint64_t items = (static_cast<uint64_t>(p.m) + rows - 1) / rows * slices;
                if (at_once == 0 || uint64_t{slices} << log2 > stages || (items > kMostItems && slices > 1)) break;
                PrenormPlan plan{.kernel = {{rows, cols}, log2},
                                 .slices = slices,
                                 .clusters = static_cast<uint32_t>(std::min<uint64_t>(items, at_once))};
                plan.us = predicted(p, d, plan, static_cast<double>(items));
                visit(plan);
            }
        }
    }
}

bool better(const PrenormPlan& a, const PrenormPlan& b) { return a.us != b.us ? a.us < b.us : a.parts() < b.parts(); }

}  // namespace

PrenormPlan plan_of(const PrenormProblem& problem, const plan::DeviceSpec& device) {
    PrenormPlan best{.us = INFINITY};
    visit_plans(problem, device, [&](const PrenormPlan& plan) {
        if (better(plan, best)) best = plan;
    });
    return best;
}

std::vector<PrenormPlan> prenorm_plans(const PrenormProblem& problem, const plan::DeviceSpec& device) {
    std::vector<PrenormPlan> all;
    visit_plans(problem, device, [&](const PrenormPlan& plan) { all.push_back(plan); });
    std::ranges::stable_sort(all, better);
    return all;
}

}  // namespace finegemm
