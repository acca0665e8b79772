// Biases of experts, as kernels and the CPU read them. Layer engine.
#pragma once

#include <finegemm/core/expert_bias.h>
#include <finegemm/core/fp8.h>
#include <finegemm/tensor.h>

#include "engine/any_address.h"

namespace finegemm {

inline ExpertBias bias_of(const ConstMatrix& biases) {
    return {.data = static_cast<const uint8_t*>(biases.data),
            .stride = biases.row_stride * size_of(biases.dtype),
            .wide = biases.dtype == DType::F32};
}

inline float bias_at(const ConstMatrix& biases, int64_t expert, int64_t col) {
    const int64_t at = expert * biases.row_stride + col;
    return biases.dtype == DType::F32 ? load<float>(biases.data, at) : float_of_bf16(load<uint16_t>(biases.data, at));
}

}  // namespace finegemm
