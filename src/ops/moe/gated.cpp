// The products of a layer of experts. Layer engine.
#include <utility>

#include "ops/gemm/finish/finishes.h"
#include "ops/moe/call.h"

namespace finegemm {

GemmShape gate_up_shape(const MoeShape& s, bool fused) {
    return {.m = rows_of(s),
            .n = 2 * s.intermediate,
            .k = s.hidden,
            .groups = s.experts,
            .expected_m = s.expected_m,
            .gated = fused,
            .num_sms = s.num_sms};
}

GemmShape down_shape(const MoeShape& s, bool stores_sums) {
    GemmShape shape = gate_up_shape(s, false);
    shape.n = s.hidden, shape.k = s.intermediate;
    if (stores_sums) plan::ask_for(stored_by_token({.rows = 1, .cols = s.tokens}, {}), shape);
    return shape;
}

FourBitShape four_bit_shape(const MoeShape& s, const GemmShape& product) {
    return {.format = s.four_bit.value_or(FourBitFormat::Mxfp4),
            .m = product.m,
            .n = product.n,
            .k = product.k,
            .groups = product.groups,
            .expected_m = product.expected_m,
            .num_sms = product.num_sms,
            .fp8 = !s.four_bit_alone};
}

Epilogue activation(const MoeOptions& o, const Stack& scales, const ConstMatrix& weights) {
    ConstMatrix of_rows = weights;
    std::swap(of_rows.rows, of_rows.cols), std::swap(of_rows.row_stride, of_rows.col_stride);
    return {.sfd = scales,
            .row_weights = {{of_rows}},
            .gate_limit = o.gate_limit,
            .gate_alpha = o.gate_alpha,
            .up_offset = o.up_offset,
            .bf16_between = !o.f32_between,
            .power_of_two_sfd = o.power_of_two_scales};
}

}  // namespace finegemm
