// SwiGLU with quantisation as a launch. Layer engine.
#include "ops/swiglu/hopper.h"

#include <algorithm>

#include "ops/expert_bias.h"

namespace finegemm {

namespace {

constexpr uint32_t kMaxGrid = 1u << 20;

/// CTAs of a matrix. With one for each of its units or so the last ones end together; where masks leave rows out there
/// are no more than SMs hold at once, as one without work takes time, too.
uint32_t ctas_of(const SwigluCall& call, const SwigluConfig& c, const SwigluParams& p, uint32_t sms) {
    const uint64_t units = static_cast<uint64_t>(p.rows) * p.across.divisor;
    const auto budget = static_cast<uint32_t>(call.options.num_sms);
    const bool bounded = budget > 0 || call.groups.form == GroupForm::Masked;
    const uint32_t used = budget > 0 ? std::min(budget, sms) : sms;
    const uint32_t most = bounded ? used * c.ctas_per_sm() : kMaxGrid;
    return static_cast<uint32_t>(
        std::clamp<uint64_t>((units + c.cta_units() - 1) / c.cta_units(), 1, std::max(1u, most / p.matrices)));
}

}  // namespace

SwigluLaunch launch_of(const SwigluCall& call, uint32_t sms) {
    const SwigluConfig config{call.x.matrix.dtype == DType::F32 ? QuantizeInput::F32 : QuantizeInput::BF16,
                              call.few && !call.has_bias(), call.has_bias(), call.stored != nullptr};
    const Matrix &q = call.q.matrix, &scales = call.scales.matrix;
    SwigluParams p{.x = call.x.matrix.data,
                   .q = static_cast<uint8_t*>(q.data),
                   .scales = static_cast<float*>(scales.data),
                   .weights = static_cast<const float*>(call.weights.data),
                   .x_row_stride = call.x.matrix.row_stride,
                   .q_row_stride = q.row_stride,
                   .scale_row_stride = scales.row_stride,
                   .scale_col_stride = scales.col_stride,
                   .weight_stride = call.weights.col_stride,
                   .x_stride = call.x.stride,
                   .q_stride = call.q.stride,
                   .scale_stride = call.scales.stride,
                   .weight_matrix_stride = call.weights.row_stride,
                   .rows = static_cast<uint32_t>(q.rows),
                   .cols = static_cast<uint32_t>(q.cols),
                   .matrices = static_cast<uint32_t>(call.q.count),
                   .matrix_ctas = {},
                   .across = Divider::by(ceil_div(static_cast<uint32_t>(q.cols), config.unit_cols())),
                   .interleaved = call.options.interleaved,
                   .power_of_two = call.options.power_of_two_scales,
                   .whole = !call.options.interleaved && q.cols % config.unit_cols() == 0,
                   .plain = call.is_plain(),
                   .rule = call.rule(),
                   .groups = call.layout(),
                   .biases = bias_of(call.biases),
                   .early = call.few,
                   .stored = call.stored};
    p.matrix_ctas = Divider::by(ctas_of(call, config, p, sms));
    return {config, p, p.matrices * p.matrix_ctas.divisor};
}

}  // namespace finegemm
