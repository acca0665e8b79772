// Casts to e4m3 with fine-grained scales. Layer: public.
#pragma once

#include <finegemm/context.h>
#include <finegemm/tensor.h>

namespace finegemm {

struct QuantizeOptions {
    bool power_of_two_scales = false;   ///< round each scale up to a power of two (UE8M0 style)
    Stream stream = nullptr;            ///< CUDA only
};

/// 1x128 scales, as activations have: q[m, k] = e4m3(x[m, k] / scales[m, k / 128]).
/// x: [M, K] bf16, f16 or f32, K contiguous; q: [M, K] e4m3, K contiguous; scales: [M, ceil(K/128)] f32, any strides.
/// scale = amax / 448; a block of zeros has scale 1 and stays zero. Values are rounded to nearest even and saturate at 448.
/// A block with NaN or Inf in it: scale is computed from its finite values; NaN becomes NaN (0x7f), Inf becomes +-448.
void quantize_rows(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                   const QuantizeOptions& options = {});

/// 128x128 scales, as weights have: scales: [ceil(N/128), ceil(K/128)] f32, any strides. Otherwise as quantize_rows.
void quantize_blocks(Context& context, const ConstMatrix& x, const Matrix& q, const Matrix& scales,
                     const QuantizeOptions& options = {});

}  // namespace finegemm
