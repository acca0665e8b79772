// The operations: check, then hand over to the backend of the device. Layer api.
#include <finegemm/gemm.h>
#include <finegemm/grouped.h>
#include <finegemm/quantize.h>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "api/checks.h"
#include "api/context.h"
#include "backend/device_spec.h"
#include "cuda/device.h"
#include "plan/table.h"

namespace finegemm {

void gemm(Context& context, const GemmArgs& args, const GemmOptions& options) {
    check_gemm(args, options);
    if (args.d.rows == 0 || args.d.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(args.d.device);
    if (options.check_values.value_or(state.options.check_values)) backend.check_scales(args, options);
    backend.gemm(args, options);
}

void grouped_gemm(Context& context, const GroupedGemmArgs& args, const GemmOptions& options) {
    check_grouped(args, options);
    if (args.d.matrix.rows == 0 || args.d.matrix.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(args.d.matrix.device);
    if (options.check_values.value_or(state.options.check_values)) backend.check_groups(args, options);
    backend.grouped_gemm(args, options);
}

namespace {

void quantize(Context& context, ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
              const QuantizeOptions& options) {
    check_quantize(shape, x, q, scales);
    if (x.rows == 0 || x.cols == 0) return;
    context.state().backend(x.device).quantize(shape, x, q, scales, options);
}

}  // namespace

void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                   const QuantizeOptions& options) {
    quantize(context, ScaleShape::Rows, x, q, scales, options);
}

void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                     const QuantizeOptions& options) {
    quantize(context, ScaleShape::Blocks, x, q, scales, options);
}

namespace {

constexpr const char* kDefaultDevice = "h200";

/// The first GPU; where there is none of Hopper, the default.
plan::DeviceSpec device_present() {
    try {
        const cuda::Device gpu(cuda::Driver::open(Options::from_environment().driver_path), 0);
        if (gpu.facts().major == 9 && gpu.facts().minor == 0) return spec_of(gpu.facts());
    } catch (const Error& e) {
        if (e.code() != Errc::Unsupported) throw;   // else there is no driver or no GPU
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

}  // namespace

std::string explain(int64_t m, int64_t n, int64_t k, const std::string& device, bool batch_invariant,
                    const std::string& plan_table) {
    const auto reject = [](const char* name, int64_t extent, const std::string& rule) {
        throw Error(Errc::InvalidArgument, fmt::format("{} is {}, must be {}", name, extent, rule));
    };
    for (const auto& [name, extent] : {std::pair{"M", m}, {"N", n}, {"K", k}})
        if (extent < 1 || extent > INT32_MAX)
            reject(name, extent, fmt::format("from 1 to {}; gemm needs no kernel for 0", INT32_MAX));
    if (n % 8 != 0) reject("N", n, "a multiple of 8; pad B with rows of zeros");
    if (k % 16 != 0) reject("K", k, "a multiple of 16; pad A and B with zeros");
    const plan::Problem problem{static_cast<uint32_t>(m), static_cast<uint32_t>(n), static_cast<uint32_t>(k),
                                batch_invariant};
    const plan::DeviceSpec spec = device_named(device);
    const bool of_environment = plan_table.empty() && device.empty();
    const std::string file = of_environment ? Options::from_environment().plan_table : plan_table;
    const plan::PlanTable table = plan::load_table(file, spec);
    return plan::explain(problem, spec, &table);
}

}  // namespace finegemm
