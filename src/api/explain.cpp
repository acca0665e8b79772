// Which kernel a product takes, and why. Layer api.
#include "api/explain.h"

#include <algorithm>

#include <fmt/format.h>

#include <finegemm/error.h>
#include <finegemm/gemm.h>

#include "api/argument.h"
#include "api/checks.h"
#include "backend/device_spec.h"
#include "cuda/device.h"
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

plan::DeviceSpec device_named(const std::string& name) {
    if (name.empty()) return device_present();
    if (const plan::DeviceSpec* spec = plan::find_device(name)) return *spec;
    throw Error(
        Errc::InvalidArgument,
        fmt::format("device: '{}' is not known; h200, h100, gh200, h800 and h20 are, and '' is the GPU present", name));
}

/// The problem of these extents. Throws for extents that need no kernel.
plan::Problem problem_of(int64_t m, int64_t n, int64_t k, int32_t num_sms) {
    const auto reject = [](const char* name, int64_t extent, const std::string& rule) {
        throw Error(Errc::InvalidArgument, fmt::format("{} is {}, must be {}", name, extent, rule));
    };
    for (const auto& [name, extent] : {std::pair{"M", m}, {"N", n}, {"K", k}})
        if (extent < 1 || extent > INT32_MAX)
            reject(name, extent, fmt::format("from 1 to {}; gemm needs no kernel for 0", INT32_MAX));
    if (n % 8 != 0) reject("N", n, "a multiple of 8; pad B with rows of zeros");
    if (k % 16 != 0) reject("K", k, "a multiple of 16; pad A and B with zeros");
    check_num_sms(num_sms);
    return {.m = static_cast<uint32_t>(m),
            .n = static_cast<uint32_t>(n),
            .k = static_cast<uint32_t>(k),
            .num_sms = static_cast<uint32_t>(num_sms)};
}

/// Without a device, calls on this machine are meant: what the environment says holds for them.
std::string account_of(plan::Problem problem, const std::string& device, const std::string& plan_table) {
    const plan::DeviceSpec spec = device_named(device);
    const Options options = device.empty() ? Options::from_environment() : Options{};
    if (options.batch_invariant) problem.batch_invariant = true;
    const plan::PlanTable table =
        plan::load_table(plan_table.empty() ? options.plan_table : plan_table, spec, options.trusted_dir);
    return plan::explain(problem, spec, &table);
}

}  // namespace

plan::Problem problem_of(const GemmShape& shape) {
    check_gemm_shape(shape);
    plan::Problem problem = problem_of(shape.m, shape.n, shape.k, shape.num_sms);
    problem.batch_invariant = shape.batch_invariant;
    problem.b_scales = shape.row_b_scales ? ScaleBlocks::Rows : ScaleBlocks::Blocks;
    problem.output = shape.out_dtype == DType::F32 ? Output::F32 : Output::BF16;
    problem.accumulate = shape.accumulate;
    return problem;
}

plan::Problem problem_of(const GroupedShape& shape) {
    check_grouped_shape(shape);
    plan::Problem problem = problem_of(shape.m, shape.n, shape.k, shape.num_sms);
    problem.groups = static_cast<uint32_t>(shape.groups);
    problem.expected_m = static_cast<uint32_t>(std::min<int64_t>(shape.expected_m, INT32_MAX));
    problem.alignment = static_cast<uint32_t>(shape.alignment);
    return problem;
}

plan::Problem problem_of(const KGroupedShape& shape) {
    check_k_grouped_shape(shape);
    plan::Problem problem = problem_of(shape.m, shape.n, shape.k, shape.num_sms);
    problem.batch_invariant = shape.batch_invariant;
    problem.b_scales = ScaleBlocks::Rows;
    problem.output = Output::F32;
    problem.accumulate = shape.accumulate;
    problem.k_groups = static_cast<uint32_t>(shape.groups);
    return problem;
}

std::string explain(const GemmShape& shape, const std::string& device, const std::string& plan_table) {
    return account_of(problem_of(shape), device, plan_table);
}

std::string explain(int64_t m, int64_t n, int64_t k, const std::string& device, bool batch_invariant,
                    const std::string& plan_table) {
    return explain(GemmShape{.m = m, .n = n, .k = k, .batch_invariant = batch_invariant}, device, plan_table);
}

std::string explain(const GroupedShape& shape, const std::string& device, const std::string& plan_table) {
    return account_of(problem_of(shape), device, plan_table);
}

std::string explain(const KGroupedShape& shape, const std::string& device, const std::string& plan_table) {
    return account_of(problem_of(shape), device, plan_table);
}

}  // namespace finegemm
