// What a launch on the mock driver computes, where a test asks for results: plain loops over what the kernel is given.
// Layer tests; only mock_driver.cpp includes it.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "mock_driver.h"

namespace finegemm::mock {

inline void compute_quantize(const std::string& entry, const QuantizeParams& p) {
    const bool square = entry.find("_blocks_") != std::string::npos;
    const auto input = [&](uint32_t r, uint32_t c) {
        const int64_t at = r * p.x_row_stride + c;
        if (entry.ends_with("_F32")) return static_cast<const float*>(p.x)[at];
        const uint16_t code = static_cast<const uint16_t*>(p.x)[at];
        return entry.ends_with("_BF16") ? float_of_bf16(code) : float_of_f16(code);
    };
    const uint32_t height = square ? kScaleBlock : 1;
    for (uint32_t r0 = 0; r0 < p.rows; r0 += height)
        for (uint32_t c0 = 0; c0 < p.cols; c0 += kScaleBlock) {
            const uint32_t r1 = std::min(r0 + height, p.rows), c1 = std::min(c0 + kScaleBlock, p.cols);
            uint32_t largest = 0;
            for (uint32_t r = r0; r < r1; ++r)
                for (uint32_t c = c0; c < c1; ++c) largest = std::max(largest, finite_magnitude(input(r, c)));
            const float scale = block_scale(largest, p.power_of_two != 0), inverse = inverse_scale(scale);
            p.scales[r0 / height * p.scale_row_stride + c0 / kScaleBlock * p.scale_col_stride] = scale;
            for (uint32_t r = r0; r < r1; ++r)
                for (uint32_t c = c0; c < c1; ++c) p.q[r * p.q_row_stride + c] = quantize_element(input(r, c), inverse);
        }
}

inline void compute_gemm(const std::string& entry, const GemmParams& p) {
    const uint32_t b_height = entry.find("_1d1d") != std::string::npos ? 1 : kScaleBlock;
    const bool f32 = entry.find("_f32") != std::string::npos;
    const Description a = description_of(p.a.last), b = description_of(p.b.last);
    const auto code = [](const Description& m, uint64_t r, uint64_t k) {
        return float_of_e4m3(static_cast<const uint8_t*>(m.data)[r * m.row_stride_bytes + k]);
    };
    for (uint32_t m = 0; m < p.m; ++m)
        for (uint32_t n = 0; n < p.n; ++n) {
            float sum = 0;
            for (uint64_t k = 0; k < a.cols; ++k) {
                const auto block = static_cast<int64_t>(k / kScaleBlock);
                const float sfa = p.sfa.data[m * p.sfa.mn_stride + block * p.sfa.k_stride];
                const float sfb = p.sfb.data[n / b_height * p.sfb.mn_stride + block * p.sfb.k_stride];
                sum += code(a, m, k) * code(b, n, k) * sfa * sfb;
            }
            const int64_t at = m * p.d_row_stride + n;
            float* const d = static_cast<float*>(p.d_data) + at;
            if (f32) *d = p.accumulate ? *d + sum : sum;
            else static_cast<uint16_t*>(p.d_data)[at] = bf16_of_float(sum);
        }
}

/// With FINEGEMM_MOCK_COMPUTES set, for tests of whole programs.
inline void compute_if_asked(const Launch& launch) {
    static const bool asked = std::getenv("FINEGEMM_MOCK_COMPUTES") != nullptr;
    if (!asked) return;
    if (launch.entry.starts_with("FineGEMM_quantize_")) compute_quantize(launch.entry, launch.quantize);
    else compute_gemm(launch.entry, launch.gemm);
}

}  // namespace finegemm::mock
