// SwiGLU with quantisation on the CPU: the rule of quantize/activation.h for a block at a time. Layer cpu.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/swiglu/cpu.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "engine/any_address.h"
#include "ops/expert_bias.h"
#include "ops/quantize/cpu.h"
#include "ops/quantize/cpu_math.h"
#include "ops/swiglu/cpu.h"

#ifndef FINEGEMM_SWIGLU_BLOCK
#define FINEGEMM_SWIGLU_BLOCK
namespace finegemm {

/// Values of a row that share a scale.
struct SwigluBlock {
    const void* x;  // the row
    DType dtype;
    bool interleaved;
    int64_t pairs, first, count;  // of the row; of the block
    float weight;
    const ConstMatrix* biases;  // or null
    int64_t expert;
    float* values;
};

}  // namespace finegemm
#endif

HWY_BEFORE_NAMESPACE();
namespace finegemm::HWY_NAMESPACE {

/// Flattened, so that a fused multiply-add is an instruction where there is one.
template <typename Element>
[[gnu::flatten]] void activate(const SwigluBlock& b, const SwigluRule& rule) {
    const auto at = [&](uint32_t col) {
        const auto element = load<Element>(b.x, col);
        float x;
        if constexpr (sizeof(Element) == 2) x = float_of_bf16(element);
        else x = element;
        return b.biases ? x + bias_at(*b.biases, b.expert, col) : x;
    };
    const uint32_t distance = up_distance(b.interleaved, static_cast<uint32_t>(b.pairs));
    for (int64_t i = 0; i < b.count; ++i) {
        const uint32_t gate = gate_column(b.interleaved, static_cast<uint32_t>(b.first + i));
        b.values[i] = swiglu_value<HostMath>(at(gate), at(gate + distance), rule, b.weight);
    }
}

void Activate(const SwigluBlock& b, const SwigluRule& rule) {
    if (b.dtype == DType::F32) activate<float>(b, rule);
    else activate<uint16_t>(b, rule);
}

}  // namespace finegemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace finegemm {

HWY_EXPORT(Activate);

namespace {

void quantize_row(const SwigluCall& call, int64_t matrix, int64_t row) {
    const ConstMatrix& x = call.x.matrix;
    const Matrix &q = call.q.matrix, &scales = call.scales.matrix;
    const int64_t at = matrix * call.x.stride + row * x.row_stride;
    std::array<float, kScaleBlock> values;
    SwigluBlock block{.x = static_cast<const uint8_t*>(x.data) + at * size_of(x.dtype),
                      .dtype = x.dtype,
                      .interleaved = call.options.interleaved,
                      .pairs = q.cols,
                      .first = 0,
                      .count = 0,
                      .weight = 1,
                      .biases = call.has_bias() ? &call.biases : nullptr,
                      .expert = call.has_bias() ? group_behind(call.layout(), static_cast<uint32_t>(row)) : 0,
                      .values = values.data()};
    if (call.has_weights())
        block.weight = load<float>(call.weights.data, matrix * call.weights.row_stride + row * call.weights.col_stride);
    for (; block.first < q.cols; block.first += kScaleBlock) {
        block.count = std::min<int64_t>(kScaleBlock, q.cols - block.first);
        HWY_DYNAMIC_DISPATCH(Activate)(block, call.rule());
        const CpuQuantizeBlock codes{
            .x = values.data(),
            .q = static_cast<uint8_t*>(q.data) + matrix * call.q.stride + row * q.row_stride + block.first,
            .dtype = DType::F32,
            .codes = QuantizeCodes::E4M3,
            .rows = 1,
            .cols = block.count,
            .x_row_stride = 0,
            .q_row_stride = 0};
        store(scales.data,
              matrix * call.scales.stride + row * scales.row_stride + block.first / kScaleBlock * scales.col_stride,
              cpu_quantize_block(codes, call.options.power_of_two_scales));
    }
}

}  // namespace

void run_on_cpu(const SwigluCall& call, ThreadPool& pool) {
    constexpr int64_t kTaskRows = 16;  // enough work to be worth a turn of a thread
    const int64_t rows = call.q.matrix.rows, tasks = (rows + kTaskRows - 1) / kTaskRows;
    const GroupLayout groups = call.layout();
    const auto task = [&](int64_t i) {
        const int64_t matrix = i / tasks, first = i % tasks * kTaskRows;
        for (int64_t row = first; row < std::min(rows, first + kTaskRows); ++row)
            if (holds_row(groups, static_cast<uint32_t>(matrix), static_cast<uint32_t>(row)))
                quantize_row(call, matrix, row);
    };
    pool.parallel_for(call.q.count * tasks, task, call.options.poll);
}

}  // namespace finegemm
#endif
