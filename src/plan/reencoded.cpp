// Products with MX scales as those of the same numbers with scales for 128 of K. Layer plan.
#include <algorithm>

#include "plan/plan.h"

namespace finegemm::plan {

namespace {

/// Microseconds of a launch, and the part of memory's speed at which its codes are read and written: fitted to passes
/// over 1 to 117 MB on an H200.
constexpr double kLaunch = 2.2, kSpeed = 0.725;

/// How much longer re-encoding may be predicted to take where rows of groups are only expected: if they turn out to be
/// more, kernels with exponents take longer by as much, others by a part of it.
constexpr double kUnsure = 1.13;

}  // namespace

Problem reencoded(Problem mx) {
    mx.a.scaling = mx.b.scaling = Scaling::Rows;
    return mx;
}

double reencoding_us(const Problem& mx, const DeviceSpec& device) {
    const auto pass = [&](double rows) { return kLaunch + 2 * rows * mx.k / (kSpeed * device.hbm_bytes_per_us); };
    const double rows_of_b = static_cast<double>(mx.n) * std::max(1u, mx.groups.of_rows());
    return pass(rows_of_b) + (mx.a.scaling == Scaling::Mx ? pass(mx.m) : 0);
}

bool is_reencoded_faster(const Problem& mx, const DeviceSpec& device, const PlanTable* user) {
    if (mx.b.scaling != Scaling::Mx || mx.batch_invariant || has_sm_budget(mx, device)) return false;
    const auto us = [&](const Problem& p) { return cost(p, device, choose(p, device, user).config).total; };
    const double allowed = mx.groups.expected_m > 0 ? kUnsure : 1;
    return reencoding_us(mx, device) + us(reencoded(mx)) < allowed * us(mx);
}

}  // namespace finegemm::plan
