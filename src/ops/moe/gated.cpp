// The products of a layer of experts. Layer engine.
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

GemmShape down_shape(const MoeShape& s) {
    GemmShape shape = gate_up_shape(s, false);
    shape.n = s.hidden, shape.k = s.intermediate;
    return shape;
}

Epilogue activation(const MoeOptions& o, const Stack& scales) {
    return {.sfd = scales,
            .gate_limit = o.gate_limit,
            .gate_alpha = o.gate_alpha,
            .up_offset = o.up_offset,
            .bf16_between = !o.f32_between,
            .power_of_two_sfd = o.power_of_two_scales};
}

}  // namespace finegemm
