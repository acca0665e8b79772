// Launches of a layer of experts on a GPU, and what they take. Layer engine.
#include "ops/moe/planner.h"

#include <algorithm>

#include "ops/routing/hopper.h"
#include "ops/routing/source.h"
#include "ops/swiglu/source.h"

namespace finegemm {

namespace {

/// Microseconds of a launch that does next to nothing, and the part of memory's speed that passes over rows reach.
constexpr double kLaunch = 2.2, kPassSpeed = 0.85;

double pass_us(double bytes, const plan::DeviceSpec& d) { return kLaunch + bytes / (kPassSpeed * d.hbm_bytes_per_us); }

double scaled(double codes) { return codes * (1 + 4.0 / kScaleBlock); }

struct Product {
    plan::Problem problem;
    GemmConfig config;
    plan::Cost cost;
};

Product product_of(const GemmShape& shape, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    const plan::Problem problem = plan::problem_of(shape);
    const GemmConfig config = plan::choose(problem, d, user).config;
    return {problem, config, plan::cost(problem, d, config)};
}

MoeLaunch launch_of(const Product& p, const plan::DeviceSpec& d) {
    return {"grouped_gemm", plan::name_of(p.config), plan::text_of(p.problem), p.cost.total,
            p.cost.memory * d.hbm_bytes_per_us};
}

double swiglu_bytes(const MoeShape& s) {
    const double pairs = static_cast<double>(expected_rows_of(s)) * static_cast<double>(s.intermediate);
    return 4 * pairs + scaled(pairs);
}

double fused_us(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    return product_of(gate_up_shape(s, true), d, user).cost.total;
}

double apart_us(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    return product_of(gate_up_shape(s, false), d, user).cost.total + pass_us(swiglu_bytes(s), d);
}

}  // namespace

bool is_fused_faster(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    return fused_us(s, d, user) <= apart_us(s, d, user);
}

MoePlan plan_of(const MoeShape& s, const plan::DeviceSpec& d, const plan::PlanTable* user) {
    const std::optional<bool> rule = fused_by_rule(s);
    MoePlan plan;
    if (rule.value_or(true)) plan.fused_us = fused_us(s, d, user);
    if (!rule.value_or(false)) plan.apart_us = apart_us(s, d, user);
    plan.fused = rule.value_or(plan.fused_us <= plan.apart_us);
    const auto tokens = static_cast<double>(s.tokens), hidden = static_cast<double>(s.hidden),
               rows = static_cast<double>(expected_rows_of(s)), choices = tokens * static_cast<double>(s.choices);
    const auto pass = [&](const char* call, const jit::KernelSource& kernel, double bytes) {
        plan.launches.push_back({call, kernel.entry, "", pass_us(bytes, d), bytes});
    };
    pass("route", jit::source_of(route_config(s.tokens * s.choices)), 12 * choices);
    pass("permute_quantize", jit::source_of(PermuteConfig{true}), 2 * tokens * hidden + scaled(rows * hidden));
    plan.launches.push_back(launch_of(product_of(gate_up_shape(s, plan.fused), d, user), d));
    if (!plan.fused) pass("swiglu_quantize", jit::source_of(SwigluConfig{}), swiglu_bytes(s));
    plan.launches.push_back(launch_of(product_of(down_shape(s), d, user), d));
    pass("combine", jit::source_of(CombineConfig{}), 2 * (rows + tokens) * hidden);
    return plan;
}

}  // namespace finegemm
