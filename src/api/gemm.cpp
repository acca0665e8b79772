// The operations: check, then hand over to the backend of the device. Layer api.
#include <finegemm/gemm.h>
#include <finegemm/quantize.h>

#include <fmt/format.h>

#include <finegemm/error.h>

#include "api/checks.h"
#include "api/context.h"
#include "plan/plan.h"

namespace finegemm {

void gemm(Context& context, const GemmArgs& args, const GemmOptions& options) {
    check_gemm(args, options);
    if (args.d.rows == 0 || args.d.cols == 0) return;
    ContextState& state = context.state();
    Backend& backend = state.backend(args.d.device);
    if (options.check_values.value_or(state.options.check_values)) backend.check_scales(args, options);
    backend.gemm(args, options);
}

namespace {

void quantize(Context& context, ScaleShape shape, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
              const QuantizeOptions& options) {
    check_quantize(shape, x, q, scales);
    if (x.rows == 0 || x.cols == 0) return;
    context.state().backend(x.device).quantize(shape, x, q, scales, options);
}

}  // namespace

void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales, const QuantizeOptions& options) {
    quantize(context, ScaleShape::Rows, x, q, scales, options);
}

void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales, const QuantizeOptions& options) {
    quantize(context, ScaleShape::Blocks, x, q, scales, options);
}

std::string explain(int64_t m, int64_t n, int64_t k, const std::string& device) {
    for (const auto& [name, extent] : {std::pair{"M", m}, {"N", n}, {"K", k}})
        if (extent < 1 || extent > INT32_MAX)
            throw Error(Errc::InvalidArgument, fmt::format("{} is {}, must be from 1 to {}", name, extent, INT32_MAX));
    if (n % 8 != 0) throw Error(Errc::InvalidArgument, fmt::format("N is {}, must be a multiple of 8", n));
    if (k % 16 != 0) throw Error(Errc::InvalidArgument, fmt::format("K is {}, must be a multiple of 16", k));
    const plan::DeviceSpec* spec = plan::find_device(device.empty() ? "h200" : device);
    if (!spec)
        throw Error(Errc::InvalidArgument, fmt::format("device '{}' is not known; h200, h100, gh200, h800 and h20 are", device));
    return plan::explain({static_cast<uint32_t>(m), static_cast<uint32_t>(n), static_cast<uint32_t>(k)}, *spec);
}

}  // namespace finegemm
