// Which kernel a product takes, and why. Layer api.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <finegemm/error.h>
#include <finegemm/gemm.h>
#include <finegemm/moe.h>

#include "api/explained_device.h"
#include "cuda/device.h"
#include "engine/device_spec.h"
#include "ops/four_bit/call.h"
#include "ops/moe/checks.h"
#include "ops/moe/planner.h"
#include "plan/fields.h"
#include "plan/table.h"

namespace finegemm {

namespace {

constexpr const char* kDefaultDevice = "h200";

/// The first GPU; where there is none of Hopper, the default.
plan::DeviceSpec device_present() {
    try {
        const cuda::Device gpu(cuda::Driver::open(Options::from_environment().driver_path), 0);
        if (gpu.facts().major == 9 && gpu.facts().minor == 0) return spec_of(gpu.facts());
    } catch (const Error& e) {
        if (e.code() != Errc::Unsupported) throw;  // else there is no driver or no GPU
    }
    return *plan::find_device(kDefaultDevice);
}

}  // namespace

plan::DeviceSpec explained_device(const std::string& name) {
    if (name.empty()) return device_present();
    if (const plan::DeviceSpec* spec = plan::find_device(name)) return *spec;
    throw Error(
        Errc::InvalidArgument,
        fmt::format("device: '{}' is not known; h200, h100, gh200, h800 and h20 are, and '' is the GPU present", name));
}

std::string explain(const GemmShape& shape, const std::string& device, const std::string& plan_table) {
    plan::check_shape(shape);
    const plan::DeviceSpec spec = explained_device(device);
    // Without a device, calls on this machine are meant: what the environment says holds for them.
    const Options options = device.empty() ? Options::from_environment() : Options{};
    GemmShape asked = shape;
    asked.batch_invariant |= options.batch_invariant;
    const plan::PlanTable table =
        plan::load_table(plan_table.empty() ? options.plan_table : plan_table, spec, options.trusted_dir);
    return plan::explain(plan::problem_of(asked), spec, &table);
}

std::string explain(int64_t m, int64_t n, int64_t k, const std::string& device, bool batch_invariant,
                    const std::string& plan_table) {
    return explain(GemmShape{.m = m, .n = n, .k = k, .batch_invariant = batch_invariant}, device, plan_table);
}

namespace {

std::string why_fused(const MoeShape& s, const MoePlan& plan) {
    if (s.biased) return "biases are added with the activation, in a launch of its own, and with the weighted sums";
    if (plan.forms.gate_up_four_bit)
        return "the product of weights of 4 bits leaves the activation to a launch of its own";
    if (s.intermediate % kScaleBlock != 0)
        return fmt::format("I of {} is no multiple of 128: the activation has a launch of its own", s.intermediate);
    if (s.f32_between) return "f32_between needs the activation in the product's launch";
    if (s.fused) return "fused is given";
    return fmt::format("product and activation are expected to take {:.1f} us in one launch, {:.1f} us in two",
                       plan.fused_us, plan.apart_us);
}

std::string why_weights(const MoeShape& s, const MoePlan& plan) {
    if (!s.four_bit) return "weights are FP8";
    if (s.four_bit_alone) return fmt::format("weights are {} alone", name_of(*s.four_bit));
    const auto form = [&](bool four_bit) { return four_bit ? name_of(*s.four_bit) : "FP8"; };
    return fmt::format("gate_up is multiplied as {}, down as {}, by which their products are expected to be faster",
                       form(plan.forms.gate_up_four_bit), form(plan.forms.down_four_bit));
}

std::string why_rows(const MoeShape& s) {
    return fmt::format("{} of {} rows are expected to be used, by {} experts", expected_rows_of(s), rows_of(s),
                       s.experts);
}

}  // namespace

std::string explain(const MoeShape& shape, const std::string& device) {
    check_moe(shape);
    const plan::DeviceSpec spec = explained_device(device);
    const MoePlan plan = plan_of(shape, spec);
    nlohmann::ordered_json out = {{"device", spec.name},
                                  {"us", plan.us()},
                                  {"fused", plan.forms.fused},
                                  {"why", {why_fused(shape, plan), why_weights(shape, plan), why_rows(shape)}},
                                  {"workspace_bytes", moe_workspace_bytes(shape)},
                                  {"launches", nlohmann::ordered_json::array()}};
    for (const MoeLaunch& launch : plan.launches) {
        nlohmann::ordered_json row = {
            {"call", launch.call}, {"kernel", launch.kernel}, {"us", launch.us}, {"bytes", launch.bytes}};
        if (!launch.line.empty()) row["line"] = launch.line;
        out["launches"].push_back(std::move(row));
    }
    return out.dump(2);
}

}  // namespace finegemm
