// Which kernel a product before a norm takes, and why. Layer api.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <finegemm/prenorm.h>

#include "api/explained_device.h"
#include "ops/prenorm/checks.h"
#include "ops/prenorm/planner.h"
#include "ops/prenorm/source.h"

namespace finegemm {

namespace {

std::string why_kernel(const PrenormShape& shape, const PrenormConfig& c) {
    return fmt::format("N is {}: kernels have 24 or 32 columns, this one {}; M of {} is in tiles of {} rows", shape.n,
                       c.cols, shape.m, c.rows);
}

std::string why_parts(const PrenormShape& shape, const PrenormPlan& plan) {
    if (plan.parts() == 1) return fmt::format("K of {} is not cut, as more parts would not be faster", shape.k);
    const uint32_t cluster = plan.kernel.cluster();
    std::string text = fmt::format("K of {} is cut into {} parts", shape.k, plan.parts());
    if (cluster > 1) text += fmt::format(", of which the {} CTAs of a cluster add up {}", cluster, cluster);
    return text + (plan.slices > 1 ? fmt::format(", in {} slices", plan.slices) : "");
}

std::string why_slices(const PrenormShape& shape, const PrenormPlan& plan) {
    const int64_t zero = shape.slices - plan.slices;
    if (shape.slices == 1) return "d is one sum, as no slices are asked for";
    return zero > 0
               ? fmt::format("{} of the {} slices become zero, as more parts would not be faster", zero, shape.slices)
               : fmt::format("none of the {} slices is zero", shape.slices);
}

nlohmann::ordered_json json_of(const PrenormPlan& plan) {
    return {{"rows", plan.kernel.config.rows},
            {"cluster", plan.kernel.cluster()},
            {"slices", plan.slices},
            {"ctas", plan.ctas()},
            {"us", plan.us}};
}

}  // namespace

std::string explain(const PrenormShape& shape, const std::string& device) {
    check_prenorm(shape);
    const plan::DeviceSpec spec = explained_device(device);
    const auto plans = prenorm_plans({shape.m, shape.n, shape.k, shape.slices, shape.num_sms}, spec);
    const PrenormPlan& plan = plans[0];
    const PrenormConfig& c = plan.kernel.config;
    nlohmann::ordered_json out = {{"device", spec.name},
                                  {"kernel", jit::source_of(c).entry},
                                  {"us", plan.us},
                                  {"why", {why_kernel(shape, c), why_parts(shape, plan), why_slices(shape, plan)}},
                                  {"config",
                                   {{"rows", c.rows},
                                    {"cols", c.cols},
                                    {"cluster", plan.kernel.cluster()},
                                    {"slices", plan.slices},
                                    {"ctas", plan.ctas()},
                                    {"stages", c.stages()},
                                    {"smem_bytes", c.smem_bytes()}}},
                                  {"plans", nlohmann::ordered_json::array()}};
    for (const PrenormPlan& p : plans) out["plans"].push_back(json_of(p));
    return out.dump(2);
}

}  // namespace finegemm
