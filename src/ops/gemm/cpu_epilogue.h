// What a product becomes on the CPU before it is rounded to the type of D. Layer engine.
#pragma once

#include <cmath>
#include <type_traits>
#include <vector>

#include <finegemm/core/fp8.h>

#include "engine/any_address.h"
#include "ops/gemm/call.h"

namespace finegemm {

/// Epilogue for one of a call's products.
struct CpuEpilogue {
    float alpha = 1, beta = 0;
    ConstMatrix c{};             // as large as the product's D; unused where `adds_c` is not set
    const void* bias = nullptr;  // f32, of each column
    bool affine = false, adds_c = false;
    DColumns columns{};  // of the product in D

    float c_at(int64_t row, int64_t col) const {
        const int64_t at = row * c.row_stride + col;
        if (c.dtype == DType::F32) return load<float>(c.data, at);
        const auto half = load<uint16_t>(c.data, at);
        return c.dtype == DType::F16 ? float_of_f16(half) : float_of_bf16(half);
    }

    /// The element of D before it is rounded: of a float in the steps of AffineEpilogue, of a double in double.
    template <typename T>
    T of(T sum, int64_t row, int64_t col) const {
        if (!affine) return sum;
        T x = alpha * sum;
        if (adds_c) {
            if constexpr (std::is_same_v<T, float>) x = std::fma(beta, c_at(row, col), x);
            else x += static_cast<T>(beta) * c_at(row, col);
        }
        return bias ? x + load<float>(bias, col) : x;
    }
};

/// The epilogues of products_of(call), in their order. Rows of padding, which become zero, have none.
std::vector<CpuEpilogue> epilogues_of(const Call& call, const std::vector<GemmArgs>& products);

}  // namespace finegemm
