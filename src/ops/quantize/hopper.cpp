// A quantisation as a launch. Layer engine.
#include "ops/quantize/hopper.h"

#include <algorithm>

namespace finegemm {

namespace {

/// CTAs of a kernel, which then walks over its tasks.
constexpr uint64_t kMaxGrid = 1u << 20;

QuantizeInput input_of(DType type) {
    if (type == DType::BF16) return QuantizeInput::BF16;
    return type == DType::F16 ? QuantizeInput::F16 : QuantizeInput::F32;
}

QuantizeParams params_of(const ConstMatrix& x, const Matrix& q, const Matrix& scales, const QuantizeOptions& options) {
    return {.x = x.data,
            .q = static_cast<uint8_t*>(q.data),
            .scales = static_cast<float*>(scales.data),
            .x_row_stride = x.row_stride,
            .q_row_stride = q.row_stride,
            .scale_row_stride = scales.row_stride,
            .scale_col_stride = scales.col_stride,
            .rows = static_cast<uint32_t>(x.rows),
            .cols = static_cast<uint32_t>(x.cols),
            .power_of_two = options.power_of_two_scales};
}

}  // namespace

QuantizeLaunch launch_of(const QuantizeCall& call) {
    const auto& [shape, x, q, scales, options] = call;
    const QuantizeConfig config{
        .input = input_of(x.dtype), .square_blocks = shape == ScaleShape::Blocks, .codes = codes_of(q)};
    const QuantizeParams params = params_of(x, q, scales, options);
    const uint64_t tasks = quantize_tasks(config, params.rows, params.cols);
    const uint64_t tasks_at_once = config.square_blocks ? 1 : config.warps();  // of a CTA
    const uint64_t ctas = (tasks + tasks_at_once - 1) / tasks_at_once;
    return {config, params, static_cast<uint32_t>(std::min(ctas, kMaxGrid))};
}

QuantizeColumnsLaunch launch_of(const QuantizeColumnsCall& call) {
    const QuantizeColumnsParams params{.rows = params_of(call.x, call.row_q, call.row_scales, call.options),
                                       .q = static_cast<uint8_t*>(call.q.data),
                                       .scales = static_cast<float*>(call.scales.data),
                                       .q_row_stride = call.q.row_stride,
                                       .scale_row_stride = call.scales.row_stride,
                                       .scale_col_stride = call.scales.col_stride,
                                       .cols = static_cast<uint32_t>(call.q.cols),
                                       .groups = call.groups()};
    return {
        {input_of(call.x.dtype), codes_of(call.q)}, params, static_cast<uint32_t>(std::min(params.tiles(), kMaxGrid))};
}

}  // namespace finegemm
