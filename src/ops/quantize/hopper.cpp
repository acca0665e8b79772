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

}  // namespace

QuantizeLaunch launch_of(const QuantizeCall& call) {
    const auto& [shape, x, q, scales, options] = call;
    const QuantizeConfig config{.input = input_of(x.dtype), .square_blocks = shape == ScaleShape::Blocks};
    const QuantizeParams params{.x = x.data,
                                .q = static_cast<uint8_t*>(q.data),
                                .scales = static_cast<float*>(scales.data),
                                .x_row_stride = x.row_stride,
                                .q_row_stride = q.row_stride,
                                .scale_row_stride = scales.row_stride,
                                .scale_col_stride = scales.col_stride,
                                .rows = static_cast<uint32_t>(x.rows),
                                .cols = static_cast<uint32_t>(x.cols),
                                .power_of_two = options.power_of_two_scales};
    const uint64_t tasks = quantize_tasks(config, params.rows, params.cols);
    const uint64_t tasks_at_once = config.square_blocks ? 1 : config.warps();  // of a CTA
    const uint64_t ctas = (tasks + tasks_at_once - 1) / tasks_at_once;
    return {config, params, static_cast<uint32_t>(std::min(ctas, kMaxGrid))};
}

}  // namespace finegemm
