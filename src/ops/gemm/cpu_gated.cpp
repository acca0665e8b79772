// The SwiGLU of a product's halves, quantised, on the CPU. Layer cpu.
#include <algorithm>
#include <array>

#include <finegemm/quantize/activation.h>
#include <finegemm/quantize/quantize.h>

#include "engine/any_address.h"
#include "ops/gemm/cpu.h"
#include "ops/gemm/finish/gated.h"
#include "ops/quantize/cpu_math.h"

namespace finegemm {

namespace {

float rounded_if(bool to_bf16, float x) { return to_bf16 ? float_of_bf16(bf16_of_float(x)) : x; }

/// As they will be rounded to: to bf16 once.
std::vector<float> floats_of(const std::vector<double>& sums, bool to_bf16) {
    std::vector<float> floats;
    floats.reserve(sums.size());
    for (const double x : sums) floats.push_back(to_bf16 ? odd_float_of_double(x) : static_cast<float>(x));
    return floats;
}

}  // namespace

void store_pairs(const CpuTile& left, const std::vector<float>& gates, const std::vector<float>& ups,
                 const Epilogue& x) {
    static_assert(kCpuTileCols == kScaleBlock, "a tile has one scale in each row");
    const SwigluRule rule{Gated::limit(x), Gated::slope(x), x.up_offset};
    const Matrix &d = left.args.d, &scales = x.sfd.matrix;
    const ConstMatrix& weights = x.row_weights.rows.matrix;
    for (int64_t r = 0; r < left.rows; ++r) {
        const int64_t row = left.row + r;
        const float weight = weights.data ? load<float>(weights.data, row * weights.row_stride) : 1.0f;
        std::array<float, kScaleBlock> values;
        uint32_t largest = 0;
        for (int64_t c = 0; c < left.cols; ++c) {
            const auto at = static_cast<size_t>(r * kCpuTileCols + c);
            const float gate = rounded_if(x.bf16_between, gates[at]), up = rounded_if(x.bf16_between, ups[at]);
            const float value = rounded_if(x.bf16_between, swiglu<HostMath>(gate, up, rule, weight));
            values[static_cast<size_t>(c)] = value;
            largest = std::max(largest, finite_magnitude(value));
        }
        const float scale = block_scale(largest, x.power_of_two_sfd), inverse = inverse_scale(scale);
        store(scales.data, row * scales.row_stride + left.col / kScaleBlock * scales.col_stride, scale);
        for (int64_t c = 0; c < left.cols; ++c)
            store(d.data, row * d.row_stride + left.col + c, quantize_element(values[static_cast<size_t>(c)], inverse));
    }
}

void store_pairs(const CpuTile& left, const std::vector<double>& gates, const std::vector<double>& ups,
                 const Epilogue& x) {
    store_pairs(left, floats_of(gates, x.bf16_between), floats_of(ups, x.bf16_between), x);
}

}  // namespace finegemm
