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
            .power_of_two = options.power_of_two_scales,
            .matrices = 1,
            .x_stride = 0,
            .q_stride = 0,
            .scale_stride = 0,
            .transposed = nullptr,
            .transposed_row_stride = 0,
            .transposed_stride = 0};
}

/// Groups so small that to look for a tile's rows takes a good part of its time.
bool has_few_rows(const QuantizeColumnsCall& call) {
    return call.has_groups() && call.x.rows < int64_t{kScaleBlock} * call.groups().groups;
}

}  // namespace

QuantizeLaunch launch_of(const QuantizeCall& call) {
    const QuantizeConfig config{.input = input_of(call.x.matrix.dtype),
                                .square_blocks = call.shape == ScaleShape::Blocks,
                                .codes = codes_of(call.q.matrix),
                                .whole_rows = call.shape == ScaleShape::WholeRows};
    QuantizeParams params = params_of(call.x.matrix, call.q.matrix, call.scales.matrix, call.options);
    params.matrices = static_cast<uint32_t>(call.x.count);
    params.x_stride = call.x.stride;
    params.q_stride = call.q.stride;
    params.scale_stride = call.scales.stride;
    params.transposed = static_cast<uint8_t*>(call.transposed.matrix.data);
    params.transposed_row_stride = call.transposed.matrix.row_stride;
    params.transposed_stride = call.transposed.stride;
    const uint64_t ctas = quantize_ctas(config, params.rows, params.cols) * params.matrices;
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
                                       .cta_tiles = has_few_rows(call) ? 2u : 1u,
                                       .groups = call.groups()};
    // A grid has no more CTAs, and no memory has room for their tiles.
    const uint64_t ctas = std::min<uint64_t>(params.parts(), INT32_MAX);
    return {{input_of(call.x.dtype), codes_of(call.q)}, params, static_cast<uint32_t>(ctas)};
}

ReencodeLaunch launch_of(const ReencodeCall& call) {
    const ConstMatrix &x = call.codes.matrix, &words = call.words.matrix;
    const Matrix &q = call.q.matrix, &scales = call.scales.matrix;
    const ReencodeConfig config{.square_blocks = call.has_blocks()};
    const ReencodeParams params{.codes = static_cast<const uint8_t*>(x.data),
                                .words = static_cast<const uint32_t*>(words.data),
                                .q = static_cast<uint8_t*>(q.data),
                                .scales = static_cast<float*>(scales.data),
                                .changed = static_cast<uint32_t*>(call.changed.data),
                                .code_row_stride = x.row_stride,
                                .q_row_stride = q.row_stride,
                                .word_row_stride = words.row_stride,
                                .word_col_stride = words.col_stride,
                                .scale_row_stride = scales.row_stride,
                                .scale_col_stride = scales.col_stride,
                                .rows = static_cast<uint32_t>(x.rows),
                                .cols = static_cast<uint32_t>(x.cols),
                                .matrices = static_cast<uint32_t>(call.codes.count),
                                .code_stride = call.codes.stride,
                                .word_stride = call.words.stride,
                                .q_stride = call.q.stride,
                                .scale_stride = call.scales.stride};
    const uint64_t ctas = reencode_tasks(config, params.rows, params.cols, params.matrices);
    return {config, params, static_cast<uint32_t>(std::min(ctas, kMaxGrid))};
}

}  // namespace finegemm
