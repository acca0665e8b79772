// Finish::Gated: D is the SwiGLU of the halves of the product's columns, quantised. Layer engine.
#pragma once

#include <limits>
#include <vector>

#include "ops/gemm/finish/product_alone.h"

namespace finegemm {

/// On the CPU a product of this finish is computed by pairs of tiles (ops/gemm/cpu.cpp).
struct Gated : ProductAlone {
    static constexpr Finish kFinish = Finish::Gated;
    using ProductAlone::ProductAlone;
    static void check(const Call& call);

    template <typename FillMaps>
    static GatedParams params(const Call& call, const FillMaps&) {
        const Epilogue& x = call.epilogue();
        const Matrix& s = x.sfd.matrix;
        const ConstMatrix& w = x.row_weights.rows.matrix;
        return {.scales = static_cast<float*>(s.data),
                .scale_row_stride = s.row_stride,
                .scale_col_stride = s.col_stride,
                .scale_stride = x.sfd.stride,
                .weights = static_cast<const float*>(w.data),
                .weight_row_stride = w.row_stride,
                .weight_stride = x.row_weights.rows.stride,
                .limit = limit(x),
                .slope = slope(x),
                .offset = x.up_offset,
                .bf16_between = x.bf16_between,
                .power_of_two = x.power_of_two_sfd};
    }

    // Numbers that are not given stand for these.
    static float limit(const Epilogue& x) {
        return x.gate_limit.value_or(0) != 0 ? *x.gate_limit : std::numeric_limits<float>::infinity();
    }
    static float slope(const Epilogue& x) { return x.gate_alpha.value_or(0) != 0 ? *x.gate_alpha : 1.0f; }
};

/// Turns exact sums of gates and ups, rows of `cols`, and the bounds of their errors into those of D, half as many:
/// codes times their scales. docs/numerics.md, "Of a SwiGLU", derives the bounds.
void activate(const Epilogue& x, int64_t cols, std::vector<double>& exact, std::vector<double>& bounds);
/// What the code of D there is multiplied by.
double scale_of_pair(const Epilogue& x, int64_t row, int64_t col);

}  // namespace finegemm
